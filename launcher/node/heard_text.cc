// The one place where text of agents is taken in, beside RemoteNode's own sentences.
#include "launcher/node/heard_text.h"

#include <cstddef>
#include <string>
#include <variant>

#include "launcher/spawn/remote_script.h"

namespace regroup::node {
namespace {

constexpr std::size_t kLongestWord = 4096;  // a fingerprint, or all addresses of a host

void mend(std::string* text, std::size_t most = launcher::kLongestPrinted) {
  *text = launcher::printable(*text, most);
}

void mend(core::Join* join) {
  mend(&join->model, kLongestWord);
  mend(&join->fingerprint, kLongestWord);
}

void mend_body(core::Failure* m) {
  mend(&m->kind);
  mend(&m->place);
  mend(&m->message, kLongestWord);
}
void mend_body(core::MemberReady* m) { mend(&m->join); }
void mend_body(core::MemberLost* m) {
  mend(&m->why);
  mend_body(&m->failure);
}
void mend_body(core::HelloReply* m) {
  if (m->declared) mend(&*m->declared);
}
void mend_body(core::PeerSuspect* m) { mend(&m->why); }
void mend_body(core::Taught* m) {
  mend(&m->endpoints, kLongestWord);
  mend(&m->why);
}
void mend_body(core::Learned* m) { mend(&m->why); }
void mend_body(core::Diverged* m) { mend(&m->why, kLongestWord); }
template <class Other>
void mend_body(Other*) {}  // without text, or not an agent's to say

}  // namespace

core::Message printable(core::Message message) {
  std::visit([](auto& body) { mend_body(&body); }, message.body);
  return message;
}

HostNotice printable(HostNotice notice) {
  mend(&notice.why);
  return notice;
}

}  // namespace regroup::node
