// MPI for jobs of MIN:MAX members that do not use the runtime: each launch is an MPI_COMM_WORLD of
// its own.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/pmi/mpi.h"
#include "launcher/process/app.h"
#include "proto/message.h"

namespace regroup::job {

// Used by the loop's thread.
class MpiLaunches {
 public:
  using StartMember = std::function<void(const proto::Start& start, process::Extras extras)>;
  using Say = std::function<void(const std::string&)>;
  // `app`: what all members run. `slots`: cores there are for them; 0: not known.
  MpiLaunches(boost::asio::io_context& loop, pmi::HelperOptions helper, process::App app,
              std::uint32_t slots, Say say, StartMember start);

  // One member of a launch of start.world_size, asked for in rank order. Once the last one is, and
  // regroup-pmi is ready for them, `start` is called for each.
  void add(const proto::Start& start);
  // True: it was waiting, and is not started any more.
  [[nodiscard]] bool forget(proto::MemberId member);

 private:
  [[nodiscard]] pmi::MpiEvents events();
  void open();
  void ready(std::uint32_t space, std::vector<process::Extras> extras);

  process::App app_;
  std::uint32_t slots_;
  Say say_;
  StartMember start_;
  std::vector<proto::Start> waiting_;
  std::uint32_t spaces_ = 0;  // opened so far; the newest is the one that waits
  pmi::Mpi mpi_;
};

}  // namespace regroup::job
