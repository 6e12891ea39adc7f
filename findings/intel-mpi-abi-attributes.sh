#!/usr/bin/env bash
# Under the standard ABI Intel MPI answers MPI_Comm_get_attr with values of other attributes: of three, in a circle.
# Versions: impi-rt 2021.19.0 (PyPI); mpich 5.0.2 (PyPI) only compiles the program and shows the right values.
#
# MPI 5.0 gives the predefined attributes numbers, so that one program runs with the library of any MPI. Intel's
# libmpi_abi.so.1 mixes three of them up: MPI_UNIVERSE_SIZE (507) reads MPI_LASTUSEDCODE, that one (506) reads
# MPI_APPNUM, and MPI_APPNUM (505) reads the universe size, or is not set where the launcher tells none. No call fails.
# A program that fills the universe by MPI_Comm_spawn starts 16383 processes; one that asks which of the programs of
# `mpiexec a : b` it is believes to be number 8. The same source, built for Intel's own ABI, gets the right values.
#
# Output seen (mpiexec -usize 8, two programs of one rank each; the values of the second rank):
#   MPICH, ABI:     MPI_APPNUM 1, MPI_LASTUSEDCODE 16383, MPI_UNIVERSE_SIZE 8
#   Intel MPI, ABI: MPI_APPNUM 8, MPI_LASTUSEDCODE 1, MPI_UNIVERSE_SIZE 16383
#   Intel MPI, own: MPI_APPNUM 1, MPI_LASTUSEDCODE 1073741823, MPI_UNIVERSE_SIZE 8
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH LD_LIBRARY_PATH
for name in mpich impi; do python3 -m venv "$dir/$name"; done
timeout 600 "$dir/mpich/bin/pip" install --quiet mpich==5.0.2
timeout 600 "$dir/impi/bin/pip" install --quiet --no-deps impi-rt==2021.19.0

cat >"$dir/attributes.c" <<'C'
#include <mpi.h>
#include <stdio.h>
static int value(int key) {
  int *at = NULL, found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, key, &at, &found);
  return found ? *at : -1;
}
int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 1)
    printf("MPI_APPNUM %d, MPI_LASTUSEDCODE %d, MPI_UNIVERSE_SIZE %d\n", value(MPI_APPNUM), value(MPI_LASTUSEDCODE),
           value(MPI_UNIVERSE_SIZE));
  MPI_Finalize();
}
C
"$dir/mpich/bin/mpicc_abi" -o "$dir/abi" "$dir/attributes.c"
"$dir/mpich/bin/mpicc" -o "$dir/own" "$dir/attributes.c" # libmpi.so.12, which MPICH and Intel MPI share

# usage: values PROGRAM [VAR=VALUE]
values() {
  timeout 120 env ${2+"$2"} "$dir/mpich/bin/mpiexec" -usize 8 -n 1 "$dir/$1" : -n 1 "$dir/$1" </dev/null
}
{
  echo "MPICH, ABI:     $(values abi)"
  echo "Intel MPI, ABI: $(values abi LD_LIBRARY_PATH="$dir/impi/lib")"
  echo "Intel MPI, own: $(values own LD_LIBRARY_PATH="$dir/impi/lib")"
} >"$dir/out"
cat "$dir/out"
echo "seen: $(sed -n 2p "$dir/out")"
grep -qx -e 'MPICH, ABI:     MPI_APPNUM 1, MPI_LASTUSEDCODE [0-9]*, MPI_UNIVERSE_SIZE 8' "$dir/out"
grep -qx -e 'Intel MPI, ABI: MPI_APPNUM 8, MPI_LASTUSEDCODE 1, MPI_UNIVERSE_SIZE 16383' "$dir/out"
grep -qx -e 'Intel MPI, own: MPI_APPNUM 1, MPI_LASTUSEDCODE [0-9]*, MPI_UNIVERSE_SIZE 8' "$dir/out"
