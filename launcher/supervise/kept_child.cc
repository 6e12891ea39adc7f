// The children that are kept, by number; one that is reaped is taken out, since its number is free.
#include "launcher/supervise/kept_child.h"

#include <map>
#include <mutex>

namespace regroup::launcher {
namespace {

struct Kept {
  std::mutex mutex;
  std::map<pid_t, KeptChild*> children;
};

Kept& kept() {
  static auto* const kAllKept = new Kept;  // outlives whoever is destroyed at exit
  return *kAllKept;
}

}  // namespace

KeptChild::KeptChild(pid_t pid) : pid_(pid) {
  const std::lock_guard lock(kept().mutex);
  kept().children[pid] = this;
}

KeptChild::~KeptChild() {
  const std::lock_guard lock(kept().mutex);
  const auto found = kept().children.find(pid_);
  if (found != kept().children.end() && found->second == this) kept().children.erase(found);
}

void KeptChild::reaped(pid_t pid, int status) {
  const std::lock_guard lock(kept().mutex);
  const auto found = kept().children.find(pid);
  if (found == kept().children.end()) return;
  found->second->status_ = status;
  kept().children.erase(found);
}

}  // namespace regroup::launcher
