# Sourced by ./dev: tests that fail now and then (tests/quarantine.txt) run in a part of their own, which gates nothing.
#   quarantined_ctest    a regular expression that CTest leaves out, or nothing
#   quarantined_pytest   --deselect ID for each test of pytest
#   quarantine PRESET    runs each of them QUARANTINE_RUNS times and prints how often it failed

QUARANTINE=tests/quarantine.txt
QUARANTINE_RUNS=5

quarantined() { sed -e 's/[[:space:]]*#.*//' -e '/^$/d' "$QUARANTINE"; }
quarantined_ctest() { quarantined | { grep -v '^tests/' || true; } | exactly | paste -sd '|'; }
exactly() { sed -e 's/[]$()*+.?^{|}[\\]/\\&/g' -e 's/.*/^&$/'; }  # of names, regular expressions
quarantined_pytest() { quarantined | grep '^tests/' | sed 's/^/--deselect=/' || true; }

quarantine() {
  local name run failed any=0
  while read -r name; do
    any=1 failed=0
    for ((run = 0; run < QUARANTINE_RUNS; run++)); do
      quarantined_once "$1" "$name" >>"$LOGS/quarantine.log" 2>&1 || failed=$((failed + 1))
    done
    say "$name: failed $failed of $QUARANTINE_RUNS runs"
  done < <(quarantined)
  ((any)) || echo "no test is in $QUARANTINE"
}

quarantined_once() {
  case $2 in
    tests/*) pytest_in quarantine "$2" ;;
    *) ctest_preset "$1" -R "$(exactly <<<"$2")" ;;
  esac
}
