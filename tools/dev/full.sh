# Sourced by ./dev: the parts of `./dev test --full`. Each takes well under an hour on two cores, builds what it runs,
# and leaves a record in tests/full-results (tools/dev/results.py), so that several runs add up to one pass of a tree.
#   full_parts       prints "PART COMMAND..." for each part, in order
#   full_names       prints the names
#   full_run NAMES   runs these parts
#   ctest_group, pytest_group, tidy_group   what belongs to a group
# The last group of each table is "rest": what no other group has, so that the groups together are the whole.

CTEST_GROUPS=(  # NAME, labels
  "collective ^collective$"
  "model      ^(model|scale)$"
  "launcher   ^(launcher/.*|tools/pmi)$"
)
PYTEST_GROUPS=(hosts cli python)  # folders of tests/
TIDY_GROUPS=(  # NAME, folders; a source belongs to the first group that has it, and takes about 11 s of processor time
  "base            base proto shmem checkpoint membership elastic"
  "collective      collective"
  "launcher-job    launcher/cli launcher/job launcher/placement launcher/topology"
  "launcher        launcher"
  "tools           tools"
  "test-collective tests/collective"
  "test-launcher   tests/launcher tests/tools tests/pmi"
  "test            tests"
)

full_parts() {
  local preset row name
  echo "build build_preset dev"
  echo "demo-build full_demo"
  full_ctest_parts ctest dev
  for name in "${PYTEST_GROUPS[@]}" rest; do echo "pytest-$name full_pytest $name"; done
  echo "format lint_format"
  echo "ruff lint_python"
  echo "docs build_docs"
  echo "chaos full_chaos tests/chaos/smoke"
  for preset in asan tsan; do
    echo "$preset-build build_preset $preset"
    full_ctest_parts "$preset-ctest" "$preset"
  done
  for row in "${TIDY_GROUPS[@]}" rest; do echo "tidy-${row%% *} full_tidy ${row%% *}"; done
  echo "arm64-build arm64_build"
  echo "arm64-collective arm64_ctest ^collective$"
  echo "arm64-rest arm64_ctest ^(base|proto|shmem|checkpoint|membership)$"
  echo "arm64-digits arm64_digits"
  echo "fuzz-build fuzz_build"
  echo "fuzz full_fuzz"
  echo "chaos-long full_chaos tests/chaos/run.py"
  echo "chaos-hosts full_chaos tests/chaos/run.py --hosts 3 --faults 100"
}

full_ctest_parts() {
  local row
  for row in "${CTEST_GROUPS[@]}" rest; do echo "$1-${row%% *} full_ctest $2 ${row%% *}"; done
}

full_names() { full_parts | cut -d ' ' -f 1; }

full_run() {
  local rows row words
  mapfile -t rows < <(full_parts)
  for row in "${rows[@]}"; do
    read -ra words <<<"$row"
    [[ " $* " != *" ${words[0]} "* ]] || part "${words[@]}"
  done
}

# In groups of its own, where other names may clash; without tests, as users build it.
full_demo() { WITH_TESTS= build_preset demo --target programs; }

# Options of CTest that choose a group.
ctest_group() {
  local row all=()
  for row in "${CTEST_GROUPS[@]}"; do
    all+=("${row##* }")
    [[ ${row%% *} != "$1" ]] || { printf '%s\n' -L "${row##* }"; return; }
  done
  printf '%s\n' -LE "$(IFS='|'; echo "${all[*]}")"
}

# The long sweeps belong to preset dev: the sanitizers would take hours for them.
full_ctest() {
  local options
  build_preset "$1" || return 1
  mapfile -t options < <(ctest_group "$2")
  if [[ $1 == dev ]]; then export REGROUP_TEST_FULL=1; else unset REGROUP_TEST_FULL; fi
  ctest_preset "$1" "${options[@]}"
}

# Arguments of pytest that choose a group.
pytest_group() {
  if [[ $1 != rest ]]; then echo "tests/$1"; return; fi
  echo tests
  printf -- '--ignore=tests/%s\n' "${PYTEST_GROUPS[@]}"
}

full_pytest() {
  local arguments
  build_preset dev || return 1
  mapfile -t arguments < <(pytest_group "$1")
  REGROUP_TEST_FULL=1 pytest_in "full-$1" -n "$PYTEST_JOBS" --dist loadfile --no-loadscope-reorder "${arguments[@]}"
}

# usage: tidy_group FILE...: the group of each file
tidy_group() {
  local file row folder
  for file; do
    for row in "${TIDY_GROUPS[@]}"; do
      for folder in ${row#* }; do
        [[ $file != "$folder"/* ]] || { echo "${row%% *}"; continue 3; }
      done
    done
    echo rest
  done
}

full_tidy() {
  local files wanted=() index groups
  mapfile -t files < <(cxx_sources)
  mapfile -t groups < <(tidy_group "${files[@]}")
  for index in "${!files[@]}"; do [[ ${groups[index]} != "$1" ]] || wanted+=("${files[index]}"); done
  say "${#wanted[@]} of ${#files[@]} sources"
  lint_tidy "${wanted[@]}"
}

full_chaos() { build_preset dev && run_script "$@"; }

# Inputs that reach new code stay in build-fuzz: only ./dev fuzz adds them to the tree, which must not change here.
full_fuzz() {
  local FUZZ_MOST=0
  fuzz_build && fuzz_run --minutes 15
}
