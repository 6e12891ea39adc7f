// All text of agents passes here, or through printable() in RemoteNode and Hosts.
#include "launcher/agent/untrusted_text.h"

#include <cstddef>
#include <string>
#include <variant>

#include "launcher/agent/remote_script.h"

namespace regroup::agent {
namespace {

constexpr std::size_t kLongestField = 4096;  // a fingerprint, or all addresses of a host

void sanitize(std::string* text, std::size_t most = kLongestPrinted) {
  *text = printable(*text, most);
}

void sanitize(proto::Join* join) {
  sanitize(&join->model, kLongestField);
  sanitize(&join->fingerprint, kLongestField);
}

void sanitize(proto::PlaneFacts* planes) {
  for (std::string& reason : planes->reasons) sanitize(&reason);
}

void sanitize(proto::DeviceHealth* health) {
  sanitize(&health->gpu);
  sanitize(&health->chip);
  for (std::string& fault : health->faults) sanitize(&fault);
}

void sanitize_body(proto::Failure* m) {
  sanitize(&m->kind);
  sanitize(&m->place);
  sanitize(&m->message, kLongestField);
}
void sanitize_body(proto::MemberReady* m) {
  sanitize(&m->join);
  if (m->planes) sanitize(&*m->planes);
  if (m->health) sanitize(&*m->health);
}
void sanitize_body(proto::MemberLost* m) {
  sanitize(&m->why);
  sanitize_body(&m->failure);
}
void sanitize_body(proto::HelloReply* m) {
  if (m->declared) sanitize(&*m->declared);
  for (proto::MemberPlanes& one : m->planes) sanitize(&one.planes);
}
void sanitize_body(proto::PeerSuspect* m) { sanitize(&m->why); }
void sanitize_body(proto::CarrierLost* m) { sanitize(&m->why); }
void sanitize_body(proto::SourceStatus* m) {
  sanitize(&m->endpoints, kLongestField);
  sanitize(&m->why);
}
void sanitize_body(proto::TargetStatus* m) { sanitize(&m->why); }
void sanitize_body(proto::Diverged* m) { sanitize(&m->why, kLongestField); }
template <class Other>
void sanitize_body(Other*) {}  // has no text, or is not sent by agents

}  // namespace

proto::Message printable(proto::Message message) {
  std::visit([](auto& body) { sanitize_body(&body); }, message.body);
  return message;
}

HostNotice printable(HostNotice notice) {
  sanitize(&notice.why);
  return notice;
}

}  // namespace regroup::agent
