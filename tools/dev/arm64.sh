# Sourced by ./dev: tests for ARM64 on a machine with another processor.
#   arm64_tests   installs what requirements/arm64.debian lists, cross-compiles preset arm64 and runs its tests under
#                 qemu-user, without those that tests/arm64/skipped.txt lists with the reason

arm64_tests() {
  if [[ $(uname -m) == aarch64 ]]; then
    say "this machine is an ARM64: what the dev preset builds is tested on it"
    return
  fi
  setup_packages requirements/arm64.debian
  build_preset arm64
  GTEST_FILTER="-$(arm64_skipped : )" ctest_preset arm64 -LE lint -E "(^|[./])($(arm64_skipped '|' | sed 's/\./\\./g; s/\*/.*/g'))\$"
}

# The first column of the list, joined by $1. GoogleTest's wildcard * may be used.
arm64_skipped() { grep -v '^#' tests/arm64/skipped.txt | awk '{ print $1 }' | paste -sd "$1"; }
