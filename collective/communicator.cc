// The functions of Communicator that all backends share.
#include "regroup/communicator.h"

namespace regroup::collective {

using base::Status;

base::Result<bool> Request::test() { return communicator_->test(ticket_); }
Status Request::wait() { return communicator_->wait(ticket_); }

Status Communicator::run(const Operation& operation, base::TimePoint deadline) {
  auto request = start(operation, deadline);
  return request.ok() ? request->wait() : request.status();
}

}  // namespace regroup::collective
