# Sourced by ./dev: where ./dev itself is ended (SIGTERM, SIGHUP), nobody else ends what it has started.
#   end_descendants   sends SIGTERM to all processes below ./dev and waits for their end; after 10 s sends SIGKILL.
#                     Returns at once if there are none.

END_S=10

# usage: find_below PID...: the processes below these, into the array BELOW. No subshells: they would be found, too.
find_below() {
  local todo=("$@") pid file children
  BELOW=()
  while ((${#todo[@]})); do
    pid=${todo[-1]}
    unset 'todo[-1]'
    for file in "/proc/$pid"/task/*/children; do
      children=
      { read -r children <"$file"; } 2>/dev/null || true  # no newline ends the line
      # shellcheck disable=SC2206 # words
      todo+=($children) BELOW+=($children)
    done
  done
}

# Zombies are gone: their parents may not wait for them.
lives() {
  local stat=
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  [[ ${stat##*) } != [ZX]* ]]
}

end_descendants() {
  local -A known=()
  local pid end=$((SECONDS + END_S)) living
  while :; do
    find_below $$ "${!known[@]}"  # one whose parent has ended is no longer below $$
    living=()
    for pid in "${!known[@]}" "${BELOW[@]}"; do
      lives "$pid" || continue
      living+=("$pid")
      [[ ${known[$pid]:-} ]] || kill -TERM "$pid" 2>/dev/null || true
      known[$pid]=1
    done
    ((${#living[@]})) || return 0
    if ((SECONDS >= end)); then
      kill -KILL "${living[@]}" 2>/dev/null || true
      ((SECONDS < end + END_S)) || return 0  # one that hangs in the kernel
    fi
    sleep 0.1
  done
}
