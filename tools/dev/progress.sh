# Sourced by ./dev: says what is being done and how long it took the last time.
#   progress NAME TEXT COMMAND...   runs COMMAND with its output in a log; on a terminal a bar moves meanwhile. If it
#                                   fails the end of the log is shown.
#   last_time NAME                  ", last time 40 s", or nothing where it has not run here yet
#   took NAME SECONDS               what last_time says from now on

LOGS=.dev/log
mkdir -p "$LOGS" 2>/dev/null || true  # ./dev help works where nothing can be written

last_seconds() { sed -n "s/^$1 //p" .dev/seconds 2>/dev/null | tail -n 1; }

last_time() {
  local seconds
  seconds=$(last_seconds "$1")
  [[ -z $seconds ]] || printf ', last time %s' "$(duration "$seconds")"
}

duration() { if (($1 < 100)); then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi; }

took() {
  local rest
  rest=$(grep -v "^$1 " .dev/seconds 2>/dev/null || true)
  printf '%s%s %s\n' "${rest:+$rest$'\n'}" "$1" "$2" >".dev/seconds.$BASHPID" && mv ".dev/seconds.$BASHPID" .dev/seconds
}

progress() {
  local name=$1 text=$2 log=$LOGS/$1.log start=$SECONDS rc=0 bar=
  say "$text$(last_time "$name")"
  if [[ -t 2 ]]; then
    move_bar "$(last_seconds "$name")" &
    bar=$!
  fi
  "${@:3}" </dev/null >"$log" 2>&1 || rc=$?
  if [[ $bar ]]; then
    kill "$bar" 2>/dev/null || true
    wait "$bar" 2>/dev/null || true
    printf '\r\033[K' >&2
  fi
  ((rc == 0)) || { tail -n 40 "$log" >&2; printf '(whole log: %s)\n' "$log" >&2; return "$rc"; }
  took "$name" $((SECONDS - start))
}

# A bar of 30 places (fewer in a narrow terminal), full after as many seconds as the last time; without a last time a mark that wanders.
move_bar() {
  local expected=${1:-0} start=$SECONDS places=30 passed filled columns
  columns=$(stty size <&2 2>/dev/null | cut -d ' ' -f 2) || true
  ((${columns:-0} == 0 || columns >= places + 40)) || places=$((columns > 50 ? columns - 40 : 10))
  trap 'exit 0' TERM
  while :; do
    passed=$((SECONDS - start))
    if ((expected > 0)); then
      filled=$((passed * places / expected))
      ((filled <= places)) || filled=$places
      printf '\r    [%-*s] %s of about %s ' "$places" "$(printf '%*s' "$filled" '' | tr ' ' '#')" "$(duration "$passed")" "$(duration "$expected")" >&2
    else
      printf '\r    [%*s%-*s] %s ' $((passed % places)) '' $((places - passed % places)) '#' "$(duration "$passed")" >&2
    fi
    sleep 1
  done
}
