# Sourced by ./dev: runs the parts of a verb one after the other, whatever fails, and tells at the end.
#   part NAME COMMAND...   runs COMMAND, shows and keeps its output
#   only_parts A,B,...     of all parts after it, only these are run; close_parts fails for a name that no part has
#   close_parts            prints minutes and closing line of each part; fails if any part failed

PARTS=()
FAILED=()
ONLY=  # ",A,B,": of these, what is still to come

only_parts() { ONLY=",$1,"; }

part() {
  if [[ $ONLY ]]; then
    [[ $ONLY == *",$1,"* ]] || return 0
    while [[ $ONLY == *",$1,"* ]]; do ONLY=${ONLY/",$1,"/,}; done
  fi
  local name=$1 log=$LOGS/part-$1.log start=$SECONDS rc=0 verdict=ok
  say "$name$(last_time "part-$1")"
  (set +e; "${@:2}") 2>&1 | tee "$log" || rc=$?
  took "part-$1" $((SECONDS - start))
  ((rc == 0)) || { verdict="FAILED ($rc)"; FAILED+=("$name"); }
  PARTS+=("$(printf '%-11s %5s min  %-12s %s' "$name" "$(minutes $((SECONDS - start)))" "$verdict" "$(closing_line "$log")")")
}

minutes() { printf '%d.%02d' $(($1 / 60)) $(($1 % 60 * 100 / 60)); }

# What CTest and pytest say last: "100% tests passed, ...", "12 passed in 3.4s"; so does each run of pytest. Behind it what failed.
closing_line() {
  grep -aE '^[0-9]+% tests passed|^=*\s*([0-9]+ (passed|failed|skipped|errors?)).* in [0-9.]+s' "$1" | tail -4 | paste -sd ';' || true
  sed -nE 's/^.*Test +#[0-9]+: (\S+) \.*[* ]+(Failed|Timeout|Exception).*$/  failed: \1/p; s/^(FAILED|ERROR) (tests\S+).*$/  failed: \2/p' "$1" | sort -u
}

close_parts() {
  say "parts"
  printf '%s\n' "${PARTS[@]}"
  [[ -z $ONLY || $ONLY == , ]] || FAILED+=("${ONLY//,/ }(no such part here)")
  ((${#FAILED[@]} == 0)) || die "failed: ${FAILED[*]}"
  say "all parts passed"
}
