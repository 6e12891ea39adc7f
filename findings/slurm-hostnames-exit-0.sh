#!/usr/bin/env bash
# `scontrol show hostnames` ends with status 0 for a host list that it refuses, and expands one that was cut off.
# Versions: slurm-client 22.05.8-4+deb12u3, libreadline8 8.2-1.3 (Debian 12; downloaded, not installed), no daemon.
#
# Batch scripts take their hosts from $(scontrol show hostnames "$SLURM_JOB_NODELIST"). For a range that goes down, the
# message is on stderr, stdout is empty and the status is 0: `set -e` does not end the script, which goes on without a
# host. A list that lacks its closing bracket, as one that was cut at a limit of length does, is no error at all: of
# "n[1-3,5" come the hosts "n]" and "5", of "n[1-2],m[5-" a host "m]". A blank in a range becomes a zero: "n[ 1-2]" is
# n01 and n02. The status tells something only if the configuration is missing.
#
# Output seen:
#   n[3-1]: status 0, hosts ''
#   n[1-3,5: status 0, hosts 'n] 5'
#   n[1-2],m[5-: status 0, hosts 'n1 n2 m]'
#   n[ 1-2]: status 0, hosts 'n01 n02'
#   n[1-3]: status 0, hosts 'n1 n2 n3'
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
version=22.05.8-4+deb12u3
timeout 300 apt-get download -qq slurm-client=$version slurm-wlm-basic-plugins=$version libreadline8=8.2-1.3 \
  >"$dir/err" 2>&1 || { cat "$dir/err" >&2; exit 1; }
for package in ./*.deb; do dpkg -x "$package" root; done
cat >slurm.conf <<'CONF'
ClusterName=test
SlurmctldHost=localhost
NodeName=n1
PartitionName=all Nodes=n1
CONF
unset "${!SLURM_@}"
lib=$dir/root/usr/lib/x86_64-linux-gnu
export SLURM_CONF=$dir/slurm.conf LD_LIBRARY_PATH=$lib/slurm-wlm:$lib:$dir/root/lib/x86_64-linux-gnu
[[ $("$dir/root/usr/bin/scontrol" --version) == "slurm-wlm 22.05.8" ]]

for list in 'n[3-1]' 'n[1-3,5' 'n[1-2],m[5-' 'n[ 1-2]' 'n[1-3]'; do
  status=0
  hosts=$(timeout 20 "$dir/root/usr/bin/scontrol" show hostnames "$list" 2>"$dir/err") || status=$?
  printf "%s: status %d, hosts '%s'\n" "$list" "$status" "$(echo $hosts)"
  [[ $list != 'n[3-1]' ]] || grep -qF 'Invalid hostlist: n[3-1]' "$dir/err"
done >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 1p "$dir/out"); $(sed -n 2p "$dir/out")"
grep -qxF "n[3-1]: status 0, hosts ''" "$dir/out"
grep -qxF "n[1-3,5: status 0, hosts 'n] 5'" "$dir/out"
grep -qxF "n[1-2],m[5-: status 0, hosts 'n1 n2 m]'" "$dir/out"
grep -qxF "n[ 1-2]: status 0, hosts 'n01 n02'" "$dir/out"
grep -qxF "n[1-3]: status 0, hosts 'n1 n2 n3'" "$dir/out"
