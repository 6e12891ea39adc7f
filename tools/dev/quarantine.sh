# Sourced by ./dev: tests that fail now and then (tests/quarantine.txt) run in a part of their own, which gates nothing.
#   quarantined_ctest    a regular expression that CTest leaves out, or nothing
#   quarantined_pytest   the ids of tests of pytest, which tests/conftest.py leaves out where REGROUP_DESELECT has them
#   quarantine PRESET    runs each of them QUARANTINE_RUNS times and prints how often it failed

QUARANTINE=tests/quarantine.txt
QUARANTINE_RUNS=5

# A comment begins a line or stands behind a blank.
quarantined() { sed -E -e 's/(^|[[:space:]]+)#.*//' -e 's/^[[:space:]]+//' -e 's/[[:space:]]+$//' -e '/^$/d' "$QUARANTINE"; }
quarantined_ctest() { quarantined | { grep -v '^tests/' || true; } | exactly | paste -sd '|'; }
exactly() { sed -e 's/[]$()*+.?^{|}[\\]/\\&/g' -e 's/.*/^&$/'; }  # of names, regular expressions
quarantined_pytest() { quarantined | grep '^tests/' || true; }

quarantine() {
  local name run rc failed any=0 unknown=0
  while read -r name; do
    any=1 failed=0
    for ((run = 0; run < QUARANTINE_RUNS; run++)); do
      rc=0
      quarantined_once "$1" "$name" >"$LOGS/quarantine.log" 2>&1 || rc=$?
      ((${INTERRUPTED:-0} == 0)) || return 130
      if grep -qE '^No tests were found|^ERROR: (not found|file or directory not found)' "$LOGS/quarantine.log"; then
        say "$QUARANTINE: there is no test $name"
        unknown=1
        continue 2
      fi
      ((rc == 0)) || failed=$((failed + 1))
    done
    say "$name: failed $failed of $QUARANTINE_RUNS runs"
  done < <(quarantined)
  ((any)) || echo "no test is in $QUARANTINE"
  ((unknown == 0))
}

quarantined_once() {
  case $2 in
    tests/*) pytest_in quarantine "$2" ;;
    *) ctest_preset "$1" -R "$(exactly <<<"$2")" ;;
  esac
}
