# Sourced by ./dev: runs the parts of a verb one after the other, whatever fails, and tells at the end.
#   part NAME COMMAND...   runs COMMAND, shows and keeps its output
#   only_parts A,B,...     of all parts after it, only these are run; close_parts fails for a name that no part has
#   close_parts            prints minutes and closing line of each part; fails if any part failed
# .dev/log/parts.tsv has a row for each part: name, seconds, exit status, names of tests that failed. Where RECORD_TREE
# is set, each part leaves a record of that tree (tools/dev/results.py).

# Programs under test handle Ctrl-C themselves and end well, so bash itself has to note that it was pressed.
INTERRUPTED=0
trap 'INTERRUPTED=1' INT

PARTS=()
FAILED=()
PART_ROWS=$LOGS/parts.tsv
RECORD_TREE=
ONLY=  # ",A,B,": of these, what is still to come

only_parts() { ONLY=",$1,"; }

part() {
  if [[ $ONLY ]]; then
    [[ $ONLY == *",$1,"* ]] || return 0
    while [[ $ONLY == *",$1,"* ]]; do ONLY=${ONLY/",$1,"/,}; done
  fi
  local name=$1 log=$LOGS/part-$1.log start=$SECONDS seconds rc=0 verdict=ok
  ((${#PARTS[@]})) || : >"$PART_ROWS"
  ((INTERRUPTED == 0)) || die "interrupted before part $name"
  say "$name$(last_time "part-$1")"
  (set +e; "${@:2}") 2>&1 | tee "$log" || rc=$?
  ((INTERRUPTED == 0)) || die "interrupted in part $name, of which nothing is recorded"
  seconds=$((SECONDS - start))
  took "part-$1" "$seconds" || true  # the disk may be full
  ((rc == 0)) || { verdict="FAILED ($rc)"; FAILED+=("$name"); }
  PARTS+=("$(printf '%-23s %5s min  %-12s %s' "$name" "$(minutes "$seconds")" "$verdict" "$(closing_line "$log"; failed_tests "$log" | sed 's/^/  failed: /')")")
  printf '%s\t%s\t%s\t%s\n' "$name" "$seconds" "$rc" "$(failed_tests "$log" | paste -sd ' ')" >>"$PART_ROWS" || true
  [[ -z $RECORD_TREE ]] || results part "$name" "$RECORD_TREE" "$seconds" "$rc" "$(closing_line "$log")" || true
}

results() { python3 tools/dev/results.py "$@"; }

minutes() { printf '%d.%02d' $(($1 / 60)) $(($1 % 60 * 100 / 60)); }

# What CTest and pytest say last: "100% tests passed, ...", "12 passed in 3.4s"; so does each run of pytest.
closing_line() {
  grep -aE '^[0-9]+% tests passed|^=*\s*([0-9]+ (passed|failed|skipped|errors?)).* in [0-9.]+s' "$1" | tail -4 | paste -sd ';' || true
}

# Names of what failed.
failed_tests() {
  sed -nE 's/^.*Test +#[0-9]+: (\S+) \.*[* ]+(Failed|Timeout|Exception).*$/\1/p; s/^(FAILED|ERROR) (tests\S+).*$/\2/p' "$1" | sort -u
}

close_parts() {
  say "parts"
  printf '%s\n' "${PARTS[@]}"
  [[ -z $ONLY || $ONLY == , ]] || FAILED+=("${ONLY//,/ }(no such part here)")
  ((${#FAILED[@]} == 0)) || die "failed: ${FAILED[*]}"
  say "all parts passed"
}
