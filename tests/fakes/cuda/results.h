// CUDA's types and results under their short names, with the results that the product does not tell
// apart.
#pragma once

#include "collective/cuda/driver.h"

namespace regroup::fakes::cuda {

using collective::cuda::AccessDescription;
using collective::cuda::Allocation;
using collective::cuda::AllocationProperties;
using collective::cuda::Context;
using collective::cuda::DeviceAttribute;
using collective::cuda::DeviceIndex;
using collective::cuda::DevicePointer;
using collective::cuda::DeviceUuid;
using collective::cuda::Driver;
using collective::cuda::DriverEvent;
using collective::cuda::DriverResult;
using collective::cuda::Function;
using collective::cuda::kBlockingSync;
using collective::cuda::kDisableTiming;
using collective::cuda::kHostRegisterPortable;
using collective::cuda::kMemoryTypeDevice;
using collective::cuda::kMemoryTypeHost;
using collective::cuda::kMinimumGranularity;
using collective::cuda::kNonBlockingStream;
using collective::cuda::kPosixFileDescriptor;
using collective::cuda::kReadOnly;
using collective::cuda::kReadWrite;
using collective::cuda::MemoryLocation;
using collective::cuda::Module;
using collective::cuda::PointerAttribute;
using collective::cuda::Stream;

inline constexpr DriverResult kSuccess = DriverResult::kSuccess;
inline constexpr DriverResult kInvalidValue = DriverResult::kInvalidValue;
inline constexpr DriverResult kOutOfMemory = DriverResult::kOutOfMemory;
inline constexpr DriverResult kNotInitialized = DriverResult::kNotInitialized;
inline constexpr DriverResult kInvalidDevice = DriverResult::kInvalidDevice;
inline constexpr DriverResult kInvalidContext = DriverResult::kInvalidContext;
inline constexpr DriverResult kNotReady = DriverResult::kNotReady;
inline constexpr DriverResult kNotSupported = DriverResult::kNotSupported;
inline constexpr DriverResult kInvalidHandle{400};
inline constexpr DriverResult kNotFound{500};
inline constexpr DriverResult kContextIsDestroyed{709};
inline constexpr DriverResult kAlreadyRegistered{712};
inline constexpr DriverResult kNotRegistered{713};
inline constexpr DriverResult kCaptureUnsupported{900};
inline constexpr DriverResult kCaptureInvalidated{901};
inline constexpr DriverResult kCaptureImplicit{906};
inline constexpr DriverResult kCapturedEvent{907};
inline constexpr DriverResult kUnknown{999};

}  // namespace regroup::fakes::cuda
