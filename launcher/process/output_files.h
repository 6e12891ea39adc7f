// Files for members' output, in addition to the launcher's output or instead of it.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/process/app.h"
#include "launcher/process/sink.h"
#include "launcher/spec/request.h"

namespace regroup::process {

// FOLDER/1/rank.N/stdout for OutputRequest::folder, as Open MPI 4 writes them, and the files of the
// patterns of hydra: %r is the rank, %h the host, %g and %p (process group and proxy) are 0, %% is
// a %. A file that two streams name is opened once, so its lines are whole; one that a later
// process of the same member names goes on. Used by the loop's thread.
class OutputFiles {
 public:
  // `broken` is called once for each file that cannot be written.
  OutputFiles(boost::asio::io_context& loop, spec::OutputRequest request,
              std::function<void(const base::Status&)> broken)
      : loop_(loop), request_(std::move(request)), broken_(std::move(broken)) {}

  // The sinks for `stream` (stdout or stderr) of the member at `place`: `own`, unless its files are
  // in place of it or nobody is to see it, which comes first, and files. Creates
  // folders and files, which may block. The sinks live as long as this object.
  [[nodiscard]] base::Result<std::vector<Sink*>> sinks(const Place& place,
                                                       const std::string& stream, Sink& own);
  // What each line of the stream begins with on our own output, and not in files; "": nothing.
  [[nodiscard]] std::string own_prefix(const Place& place, const std::string& stream) const;
  [[nodiscard]] bool congested() const;
  // Calls `resume` once when the file that is congested now has drained.
  void when_free(std::function<void()> resume);

 private:
  [[nodiscard]] std::string in_folder(const Place& place, const std::string& stream);
  [[nodiscard]] std::string in_log_folder(const Place& place, const std::string& stream) const;
  [[nodiscard]] base::Result<Sink*> open(const std::string& path);

  boost::asio::io_context& loop_;
  const spec::OutputRequest request_;
  const std::function<void(const base::Status&)> broken_;
  std::size_t digits_ = 0;  // digits of the rank in a folder's name; 0: not known yet
  std::map<std::string, std::unique_ptr<Sink>> files_;
};

}  // namespace regroup::process
