# Compiles for ARM64 on another machine with Debian's cross compiler and runs what it built under qemu-user; what is
# needed: requirements/arm64.debian. Headers of libraries are those of this machine, which the compiler finds after its
# own in /usr/include; libraries and packages of this machine's processor are not found.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
