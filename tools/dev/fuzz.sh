# Sourced by ./dev, which has say, die and build_preset: libFuzzer on the targets of tests/fuzz (docs/dev/fuzzing.md).
#   fuzz_build [NAME...]               builds these targets, or all, in build-fuzz
#   fuzz_run NAME [ARGS]               runs one target until it crashes or is stopped; ARGS are libFuzzer's: -runs=N, a file
#   fuzz_run --minutes N [NAME...]     shares N minutes among these targets, or all, and keeps the inputs that reach new code
#   fuzz_run --coverage [NAME...]      runs the kept inputs of these targets, or all, once: edges and features of each
# Needs requirements/fuzz.debian.

FUZZ_LARGEST=4096  # bytes of an input that is kept
FUZZ_MOST=60       # inputs kept for a target
FUZZ_WORK=build-fuzz/inputs

# What is configured.
fuzz_names() {
  cmake --build build-fuzz --target help | sed -nE 's/^fuzz_([a-z0-9_]+): phony$/\1/p' | grep -vx targets | sort -u
}

fuzz_build() {
  local programs=("${@/#/fuzz_}")
  build_preset fuzz --target "${programs[@]:-fuzz_targets}"
}

fuzz_run() {
  export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
  case ${1:-} in
    --minutes) fuzz_minutes "${@:2}" ;;
    --coverage) fuzz_coverage "${@:2}" ;;
    *) fuzz_one "$@" ;;
  esac
}

# The folders of inputs that are kept for a target, into the array FOLDERS.
fuzz_folders() {
  local folder
  FOLDERS=()
  for folder in "tests/fuzz/corpus/$1" "tests/golden/$1"; do [[ ! -d $folder ]] || FOLDERS+=("$folder"); done
}

# New inputs stay in build-fuzz/inputs/NAME/new. With a file among ARGS only that is run.
fuzz_one() {
  local name=$1 work=$FUZZ_WORK/$1 argument FOLDERS
  shift
  mkdir -p "$work/new"
  fuzz_folders "$name"
  for argument; do [[ $argument == -* ]] || FOLDERS=(); done
  ((${#FOLDERS[@]} == 0)) || set -- "$@" "$work/new" "${FOLDERS[@]}"
  "build-fuzz/bin/fuzz_$name" -artifact_prefix="$work/" "$@"
}

fuzz_coverage() {
  local name names=("$@") log edges features FOLDERS
  (($#)) || mapfile -t names < <(fuzz_names)
  for name in "${names[@]}"; do
    fuzz_folders "$name"
    log=$("build-fuzz/bin/fuzz_$name" -runs=0 "${FOLDERS[@]}" 2>&1) || { echo "$log"; return 1; }
    read -r edges features < <(sed -nE 's/^#[0-9]+\t.* cov: ([0-9]+) ft: ([0-9]+) .*/\1 \2/p' <<<"$log" | tail -1) || return 1
    printf '%-15s %5s inputs %6s edges %6s features\n' "$name" "$(find "${FOLDERS[@]}" -type f | wc -l)" "$edges" "$features"
  done
}

fuzz_check_minutes() {
  [[ $1 =~ ^[1-9][0-9]*$ ]] || die "fuzz --minutes N [NAME...]: N must be a whole number >= 1, got \"$1\""
}

fuzz_minutes() {
  fuzz_check_minutes "${1:-}"
  local seconds=$(($1 * 60)) name names failed=()
  shift
  names=("$@")
  (($#)) || mapfile -t names < <(fuzz_names)
  seconds=$((seconds / ${#names[@]}))
  ((seconds)) || seconds=1
  say "fuzzing ${#names[@]} targets, $seconds s each"
  for name in "${names[@]}"; do
    fuzz_for "$name" "$seconds" || failed+=("$name")
    ((INTERRUPTED == 0)) || die "fuzz: interrupted at $name"
  done
  ((${#failed[@]} == 0)) || die "fuzz: failed: ${failed[*]}"
}

# usage: fuzz_for NAME SECONDS: one line of progress; fails with the reproducer's path if an input crashes, hangs or leaks.
fuzz_for() {
  local name=$1 work=$FUZZ_WORK/$1 log=$FUZZ_WORK/$1/log rc=0 added before after FOLDERS
  ! compgen -G "$work/crash-*" >/dev/null || mv "$work"/crash-* "$FUZZ_WORK/"  # of a run before
  rm -rf "$work"
  mkdir -p "$work/new" "tests/fuzz/corpus/$name"
  fuzz_folders "$name"
  "build-fuzz/bin/fuzz_$name" -max_total_time="$2" -rss_limit_mb=2560 -timeout=25 -artifact_prefix="$work/" \
    -print_final_stats=1 "$work/new" "${FOLDERS[@]}" >"$log" 2>&1 || rc=$?
  added=$(fuzz_keep "$name")
  before=$(sed -nE 's/.*\tINITED +cov: ([0-9]+).*/\1/p' "$log" | head -1)
  after=$(sed -nE 's/^#[0-9]+\t.* cov: ([0-9]+) .*/\1/p' "$log" | tail -1)
  printf '%-15s %7s inputs/s  edges %5s (+%s)  kept inputs %s (+%s)\n' "$name" \
    "$(sed -nE 's/^stat::average_exec_per_sec: *//p' "$log" | tail -1)" "${after:-0}" \
    "$((${after:-0} - ${before:-0}))" "$(find "${FOLDERS[@]}" -type f | wc -l)" "$added"
  rmdir --ignore-fail-on-non-empty "tests/fuzz/corpus/$name"
  ((rc == 0 || INTERRUPTED)) && return
  grep -E 'ERROR: |runtime error: |SUMMARY: ' "$log" || tail -5 "$log"
  echo "reproducer: $(find "$work" -maxdepth 1 -name '*-*' ! -name log-merge ! -name "merge-*" | head -1); the whole report: $log"
  return 1
}

# Of the new inputs (an edge that is run more often counts for nothing here), adds to tests/fuzz/corpus/NAME the few
# that reach what no kept input reaches, first the one that reaches most; prints how many.
fuzz_keep() {
  local name=$1 work=$FUZZ_WORK/$1 file added=0 kept=tests/fuzz/corpus/$1 FOLDERS
  mkdir -p "$work/all"
  fuzz_folders "$name"
  find "${FOLDERS[@]}" -type f -exec cp -t "$work/all" {} +
  find "$work/new" -type f -size "+${FUZZ_LARGEST}c" -delete
  ls "$work/all" >"$work/before"
  "build-fuzz/bin/fuzz_$name" -set_cover_merge=1 -use_counters=0 -artifact_prefix="$work/merge-" "$work/all" "$work/new" >"$work/log-merge" 2>&1 || true
  while read -r file; do
    (($(find "$kept" -type f | wc -l) < FUZZ_MOST)) || break
    cp "$work/all/$file" "$kept/"
    added=$((added + 1))
  done < <(ls -tr "$work/all" | grep -vxFf "$work/before")
  echo "$added"
}
