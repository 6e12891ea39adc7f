# Sourced by ./dev: tests run in one group of the processor's scheduler.
#   join_cpu_group   puts this ./dev and what it starts into a cgroup, which is removed at its end. Does nothing without
#                    the right to it, or where another cgroup or no autogroup holds this process.
#
# Else each session (setsid) is an autogroup. In Linux 6.18.44 an autogroup of ranks of Open MPI, of which some poll and
# others sleep for 100 us at a time, kept all others from its cores for up to 30 s, where more ranks than cores ran:
# agents of tests/hosts, each in a session of sshd, were lost by their silence of 5 s. Within a cgroup there are no
# autogroups.

CPU_GROUP_FOLDERS=(/sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup)  # two of cgroup v1, v2

join_cpu_group() {
  local folder group autogroups=
  { read -r autogroups </proc/sys/kernel/sched_autogroup_enabled; } 2>/dev/null || true
  [[ $autogroups == 1 ]] && in_root_cpu_group || return 0
  for folder in "${CPU_GROUP_FOLDERS[@]}"; do
    has_cpu_groups "$folder" || continue
    rmdir "$folder"/regroup-dev-* 2>/dev/null || true  # of a ./dev that was killed; one in use stays
    group=$folder/regroup-dev-$$
    mkdir "$group" 2>/dev/null || continue
    AT_EXIT+=("leave_cpu_group '$group'")
    ! { echo $$ >"$group/cgroup.procs"; } 2>/dev/null || return 0
  done
}

# Whether no cgroup weighs this process yet.
in_root_cpu_group() {
  local v1='^[0-9]+:(cpu|cpu,cpuacct|cpuacct,cpu):'
  if grep -qE "$v1" /proc/self/cgroup; then grep -qE "$v1/\$" /proc/self/cgroup; else grep -qx '0::/' /proc/self/cgroup; fi
}

has_cpu_groups() { [[ -e $1/cpu.shares ]] || grep -qw cpu "$1/cgroup.subtree_control" 2>/dev/null; }

# Daemons that outlive their test keep it; the next ./dev then removes it.
leave_cpu_group() {
  echo $$ >"${1%/*}/cgroup.procs" || return 0
  rmdir "$1" 2>/dev/null || true
}
