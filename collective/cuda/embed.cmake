# Writes OUTPUT, a source with the bytes of INPUT, made by the nvcc of CUDA TOOLKIT (13000), as kernel_image.h declares
# them; without INPUT, with none.
set(bytes "")
if(INPUT)
  file(READ ${INPUT} bytes HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
endif()
file(WRITE ${OUTPUT} "// Made by collective/cuda/embed.cmake.
#include \"collective/cuda/kernel_image.h\"

namespace regroup::collective::cuda {
namespace {

alignas(64) constexpr unsigned char kBytes[] = {
${bytes}0};

}  // namespace

KernelImage kernel_image() { return {{kBytes, sizeof kBytes - 1}, ${TOOLKIT}}; }

}  // namespace regroup::collective::cuda
")
