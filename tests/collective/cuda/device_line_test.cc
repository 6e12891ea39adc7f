// Device lines between processes: the memory outlives who filled it, only its owner writes it, and
// errors name the line.
#include "collective/cuda/device_line.h"

#include <gmock/gmock.h>

#include "base/fd.h"
#include "tests/fakes/cuda/process.h"

namespace regroup::collective::testing::device_line {
namespace {

using cuda::MappedLine;
using fakes::cuda::Gpu;
using fakes::cuda::in_process;
using fakes::cuda::kSuccess;
using fakes::cuda::Process;

constexpr std::size_t kBytes = 2 << 20;

base::Fd make_memory(const Gpu& gpu) {
  const cuda::Allocation made = gpu.create(kBytes);
  base::Fd descriptor(gpu.export_of(made));
  EXPECT_EQ(gpu->allocation_release(made), kSuccess);
  return descriptor;
}

base::Result<MappedLine> map(const Gpu& gpu, int descriptor, MappedLine::Access access) {
  return MappedLine::map(gpu.driver, descriptor, kBytes, 0, access, "the device line of slot 3");
}

TEST(MappedLine, OutlivesItsWriter) {
  Process maker([](int socket) {
    const Gpu gpu;
    fakes::cuda::send(socket, make_memory(gpu).get());
    fakes::cuda::receive(socket);
  });
  const base::Fd descriptor(fakes::cuda::receive(maker.socket()));
  maker.kill();
  EXPECT_NE(maker.wait(), 0);
  Process writer([&](int socket) {
    const Gpu gpu;
    const auto line = map(gpu, descriptor.get(), MappedLine::Access::kReadWrite);
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_EQ(gpu.store_word(line->at(512), 7, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), kSuccess);
    fakes::cuda::send(socket);
    fakes::cuda::receive(socket);
  });
  fakes::cuda::receive(writer.socket());
  writer.kill();
  EXPECT_NE(writer.wait(), 0);
  in_process([&] {
    const Gpu gpu;
    const auto line = map(gpu, descriptor.get(), MappedLine::Access::kReadOnly);
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_EQ(line->bytes(), kBytes);
    EXPECT_EQ(gpu.word(line->at(512)), 7U);
  });
}

TEST(MappedLine, OnlyItsOwnerWrites) {
  in_process([] {
    const Gpu gpu;
    const base::Fd descriptor = make_memory(gpu);
    auto own = map(gpu, descriptor.get(), MappedLine::Access::kReadWrite);
    auto other = map(gpu, descriptor.get(), MappedLine::Access::kReadOnly);
    ASSERT_TRUE(own.ok() && other.ok());
    EXPECT_EQ(gpu.store_word(own->at(0), 1, gpu.stream), kSuccess);
    EXPECT_EQ(gpu.word(other->at(0)), 1U);
    EXPECT_EQ(gpu.store_word(other->at(0), 2, gpu.stream), kSuccess);
    EXPECT_EQ(gpu->stream_synchronize(gpu.stream), cuda::DriverResult::kIllegalAddress);
  });
}

TEST(MappedLine, IsMappedAsLongAsTheObjectLives) {
  in_process([] {
    const Gpu gpu;
    const auto is_mapped = [&](cuda::DevicePointer at) {
      unsigned type = 0;
      return gpu->pointer_attribute(&type, cuda::PointerAttribute::kMemoryType, at) == kSuccess;
    };
    base::Fd descriptor = make_memory(gpu);
    MappedLine kept;
    {
      auto line = map(gpu, descriptor.get(), MappedLine::Access::kReadWrite);
      ASSERT_TRUE(line.ok());
      descriptor.reset();  // the mapping keeps the memory
      kept = std::move(line).value();
    }
    const cuda::DevicePointer at = kept.at(4);
    EXPECT_EQ(gpu.store_word(at, 9, gpu.stream), kSuccess);
    EXPECT_EQ(gpu.word(at), 9U);
    EXPECT_TRUE(is_mapped(at));
    kept = {};
    EXPECT_FALSE(is_mapped(at));
  });
}

TEST(MappedLine, NamesTheLineThatCannotBeMapped) {
  in_process([] {
    const Gpu gpu;
    const auto none = map(gpu, -1, MappedLine::Access::kReadOnly);
    EXPECT_FALSE(none.ok());
    EXPECT_THAT(
        none.status().message(),
        ::testing::StartsWith("the device line of slot 3: cuMemImportFromShareableHandle of "
                              "2097152 bytes for GPU 0: CUDA_ERROR_"));
    const base::Fd descriptor = make_memory(gpu);
    const auto large = MappedLine::map(gpu.driver, descriptor.get(), 2 * kBytes, 0,
                                       MappedLine::Access::kReadOnly, "the device line of slot 3");
    EXPECT_EQ(large.code(), base::Code::kInvalidArgument);
    EXPECT_THAT(
        large.status().message(),
        ::testing::StartsWith("the device line of slot 3: cuMemMap of 4194304 bytes for GPU 0: "));
  });
}

}  // namespace
}  // namespace regroup::collective::testing::device_line
