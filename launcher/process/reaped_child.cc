// A registry of the objects by pid. record() removes the entry, since the kernel may give the pid
// to a new process.
#include "launcher/process/reaped_child.h"

#include <map>
#include <mutex>

namespace regroup::process {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<pid_t, ReapedChild*> children;
};

Registry& registry() {
  // Never destroyed: objects may outlive static destruction.
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

}  // namespace

ReapedChild::ReapedChild(pid_t pid) : pid_(pid) {
  const std::lock_guard lock(registry().mutex);
  registry().children[pid] = this;
}

ReapedChild::~ReapedChild() {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().children.find(pid_);
  if (found != registry().children.end() && found->second == this) registry().children.erase(found);
}

void ReapedChild::record(pid_t pid, int status) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().children.find(pid);
  if (found == registry().children.end()) return;
  found->second->status_ = status;
  registry().children.erase(found);
}

}  // namespace regroup::process
