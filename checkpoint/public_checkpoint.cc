// regroup::Checkpoint of include/regroup: what users see of a checkpoint.
#include "regroup/checkpoint.h"

#include <fmt/format.h>

#include <utility>

#include "base/status.h"
#include "checkpoint/chain.h"
#include "checkpoint/checkpoint.h"

namespace regroup {

struct Checkpoint::Impl {
  checkpoint::Checkpoint opened;
  std::vector<CheckpointTensor> tensors;
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

base::Result<Checkpoint> Checkpoint::open(const std::string& path) {
  auto opened = checkpoint::Checkpoint::open(path);
  if (!opened.ok()) {
    const auto entries = checkpoint::list(path);
    if (entries.code() == base::Code::kNotFound) return entries.status();
    if (auto why = checkpoint::why_not_a_checkpoint(path)) return base::not_found(std::move(*why));
    return opened.status();
  }
  REGROUP_RETURN_IF_ERROR(checkpoint::check_whole(*opened));
  auto impl = std::make_unique<Impl>(Impl{std::move(*opened), {}});
  for (const checkpoint::Tensor& tensor : impl->opened.manifest().tensors)
    impl->tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, checkpoint::bytes_of(tensor)});
  return Checkpoint(std::move(impl));
}

base::Result<Checkpoint> Checkpoint::newest(const std::string& directory) {
  REGROUP_ASSIGN_OR_RETURN(const auto entries, checkpoint::list(directory));
  if (entries.empty()) return base::not_found(fmt::format("{}: holds no checkpoint", directory));
  return open(entries.front().path);
}

const std::string& Checkpoint::path() const { return impl_->opened.path(); }
proto::Step Checkpoint::step() const { return impl_->opened.manifest().step; }
const std::vector<CheckpointTensor>& Checkpoint::tensors() const { return impl_->tensors; }
std::optional<std::size_t> Checkpoint::find(const std::string& name) const {
  return impl_->opened.find(name);
}

base::Status Checkpoint::read(std::size_t tensor, std::span<std::byte> out) const {
  if (tensor >= impl_->tensors.size())
    return base::invalid_argument(
        fmt::format("checkpoint {}: tensor {}: expected a number below {}", path(), tensor,
                    impl_->tensors.size()));
  return impl_->opened.read(tensor, out);
}

base::Status Checkpoint::verify(unsigned threads) const {
  return checkpoint::verify(path(), {}, threads);
}

}  // namespace regroup
