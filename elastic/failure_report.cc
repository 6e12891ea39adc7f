// One message and its reply.
#include "elastic/failure_report.h"

#include <utility>

#include "base/clock.h"
#include "elastic/agent_link.h"
#include "elastic/options.h"
#include "proto/message.h"

namespace regroup::elastic {

std::optional<std::string> report_failure(proto::Failure failure, base::Duration timeout) {
  const auto env = read_environment();
  if (!env.ok() || env->agent_socket.empty() || !failure.known()) return std::nullopt;
  failure.member = env->member;
  auto link = AgentLink::connect(env->agent_socket);
  if (!link.ok() || !link->send(std::move(failure)).ok()) return std::nullopt;
  const auto answer = link->receive(base::SystemClock().now() + timeout);
  const auto* reply = answer.ok() ? std::get_if<proto::Reply>(&answer->body) : nullptr;
  if (reply == nullptr || reply->ok) return std::nullopt;
  return reply->message;
}

}  // namespace regroup::elastic
