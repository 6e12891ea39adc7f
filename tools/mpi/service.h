// The carrier process of one host in one generation: takes frames of the members of its host to the
// carriers of other hosts through MPI, and their frames to the members. docs/design/mpi_plane.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "collective/mpi/frame.h"
#include "launcher/pmi/exchange.h"
#include "launcher/pmi/mpi.h"
#include "launcher/spec/request.h"
#include "tools/mpi/exchange.h"

namespace regroup::mpi {

struct ServiceOptions {
  std::string job;           // id of the job and generation
  std::string generation;    // for messages
  std::string folder;        // for the files of regroup-pmi
  std::string library;       // of the MPI
  int host = 0;              // number of this host
  std::vector<int> host_of;  // by rank
  spec::Environment environment;
};

// Used by the loop's thread. Ends the loop once no member is connected.
class Service {
 public:
  Service(boost::asio::io_context& loop, base::Fd listener, ServiceOptions options);
  // Starts MPI, by the services of regroup-pmi.
  void start();
  // After the loop has ended: waits for frames under way.
  void finish();

 private:
  struct Member {
    explicit Member(boost::asio::io_context& loop, int socket) : socket(loop, socket) {}
    boost::asio::posix::stream_descriptor socket;
    collective::mpi::FrameReader reader;
    collective::mpi::FrameWriter writer;
    std::optional<int> rank;
    bool writing = false;
    bool bye = false;  // it needs this process no longer
  };
  using MemberPointer = std::shared_ptr<Member>;

  [[nodiscard]] int hosts() const;
  void say(const std::string& text) const;
  void accept();
  void read(const MemberPointer& member);
  [[nodiscard]] bool take(const MemberPointer& member, collective::mpi::Frame frame);
  void hello(const MemberPointer& member, int rank);
  void lose(const MemberPointer& member);
  void write(const MemberPointer& member, SharedFrame frame);
  void flush(const MemberPointer& member);
  void tell(int rank, SharedFrame frame);
  void on_frame(const std::vector<std::byte>& frame);
  void on_ready(const std::string& version);
  void fail(const std::string& why);
  void end(const std::string& why);
  void tell_end(const std::string& why);
  void probe_hosts();

  [[nodiscard]] pmi::MpiEvents pmi_events();
  void on_extras(process::Extras extras);
  void route(const pmi::Message& message);
  void pass(std::uint32_t host, const pmi::Message& message);

  boost::asio::io_context& loop_;
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer lonely_;
  const ServiceOptions options_;
  std::map<int, MemberPointer> members_;           // by rank
  std::map<int, std::vector<SharedFrame>> early_;  // for members that are not connected yet
  bool ready_ = false;
  bool failed_ = false;
  pmi::Exchange parts_;  // on host 0
  std::unique_ptr<pmi::Mpi> pmi_;
  std::unique_ptr<Exchange> exchange_;
  base::Fd messages_;  // the error output that it had at its start, until it is ready
};

}  // namespace regroup::mpi
