# Sourced by ./dev: tests for ARM64 on a machine with another processor.
#   arm64_build          installs what requirements/arm64.debian lists and cross-compiles preset arm64
#   arm64_ctest LABELS   runs its tests under qemu-user, without those that tests/arm64/skipped.txt lists with the reason;
#                        tests/arm64/not_built.txt lists what is not built
#   arm64_digits         compares the weights of C++ digits with those of preset dev; scikit-learn is installed
# On an ARM64 they do nothing.

ARM64_TESTS=(tests/base tests/proto tests/shmem tests/collective tests/checkpoint tests/membership)

# Each collective case does this part of its work (tests/collective/harness.h). A prime: of nested loops it takes other
# combinations in each round.
ARM64_SCALE=7

arm64_here() {
  [[ $(uname -m) == aarch64 ]] && say "this machine is an ARM64: what the dev preset builds is tested on it"
}

arm64_build() {
  ! arm64_here || return 0
  setup_packages arm64
  build_preset arm64 --target examples/cpp/all "${ARM64_TESTS[@]/%//all}"
}

arm64_ctest() {
  ! arm64_here || return 0
  arm64_build || return 1
  REGROUP_TEST_SCALE=$ARM64_SCALE GTEST_FILTER="-$(arm64_skipped :)" ctest_preset arm64 -L "$1" -E "$(arm64_skipped_regex)"
}

# The first column of the list, joined by $1. GoogleTest's wildcard * may be used.
arm64_skipped() { grep -v '^#' tests/arm64/skipped.txt | awk '{ print $1 }' | paste -sd "$1"; }
# For CTest, whose names may have something before GoogleTest's.
arm64_skipped_regex() { printf '(^|[./])(%s)$' "$(arm64_skipped '|' | sed 's/\./\\./g; s/\*/.*/g')"; }

# C++ digits as one process, without the launcher, ends with the same weights here and on ARM64.
arm64_digits() {
  ! arm64_here || return 0
  arm64_build && build_preset dev || return 1
  local folder=build-arm64/digits
  mkdir -p "$folder"
  .venv/bin/python -c 'import gzip, pathlib, sklearn, sys
packed = pathlib.Path(sklearn.__file__).parent / "datasets/data/digits.csv.gz"
sys.stdout.write(gzip.open(packed, "rt").read())' >"$folder/digits.csv" || return 1
  build/bin/digits "$folder/digits.csv" "$folder/weights.here" >"$folder/log.here" || return 1
  qemu-aarch64 -L /usr/aarch64-linux-gnu build-arm64/bin/digits "$folder/digits.csv" "$folder/weights.arm64" \
    >"$folder/log.arm64" || return 1
  if ! cmp "$folder"/weights.{here,arm64}; then
    say "C++ digits has other weights on ARM64"
    return 1
  fi
  say "C++ digits has the same weights on ARM64: SHA-256 $(sha256sum <"$folder/weights.arm64" | cut -d ' ' -f 1)"
}
