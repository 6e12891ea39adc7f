#!/bin/bash
# usage: tests/gpu/build_module.sh PACK OUT [--compile]
# Makes OUT a folder for PYTHONPATH: regroup, regroup.torch and the entry point of torch, for the interpreter $PYTHON
# (default: python3), from the folder that `./dev gpu-test --pack` made. Takes the module that --pack has compiled where
# it is one for this Python, unless --compile is said; otherwise compiles it, which needs g++ 12 or newer and the headers
# of Python, and nothing else of ours. CXX: another compiler.
set -euo pipefail

die() { printf 'build_module.sh: %s\n' "$*" >&2; exit 1; }

(($# == 2)) || [[ $# == 3 && $3 == --compile ]] || die "expected PACK OUT [--compile]"
module=$(realpath "$1")/module
[[ -f $module/sources ]] || die "$1: expected a folder of ./dev gpu-test --pack"
mkdir -p "$2"
out=$(realpath "$2")
start=$EPOCHREALTIME
seconds() { awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }"; }
python=${PYTHON:-python3}
export CXX=${CXX:-g++}
{ read -r headers; read -r suffix; read -r version; } < <("$python" -c "import platform, sysconfig
print(sysconfig.get_paths()['include'], sysconfig.get_config_var('EXT_SUFFIX'), platform.python_version(), sep='\n')") \
  || die "$python does not run"

# The linker takes symbols that no archive defines for Python's.
imports() { PYTHONPATH=$out "$python" -c "import regroup"; }

rm -rf "$out/regroup" "$out/regroup_torch"
cp -r "$module/package/." "$out"
if [[ -f $module/compiled/_native$suffix && ${3:-} != --compile ]]; then
  cp "$module/compiled/_native$suffix" "$out/regroup"
  if imports; then
    echo "build_module.sh: took _native$suffix of the pack for Python $version in $(seconds) s"
    exit
  fi
  echo "build_module.sh: _native$suffix of the pack does not load in Python $version; compiling"
fi

# One source; of one that fails, the compiler's first lines are shown. FILE.words holds options.
compile() {
  local words=$1.words source=$2 object=$OBJECTS/${2//\//_}.o
  "$CXX" "@$words" -isystem "$HEADERS" -c "$source" -o "$object" 2>"$object.log" && return
  printf 'build_module.sh: %s: %s failed:\n' "$source" "$CXX" >&2
  head -n 15 "$object.log" >&2
  return 255  # xargs starts no other
}
export -f compile

[[ -f $headers/Python.h ]] || die "$headers: Python.h of Python $version is missing (Debian: python3-dev)"
cd "$module"
OBJECTS=$(mktemp -d)
trap 'rm -rf "$OBJECTS"' EXIT
export OBJECTS HEADERS=$headers
xargs -P "$(nproc)" -n 2 bash -c 'compile "$@"' compile <sources || die "no module for Python $version"
"$CXX" -shared -fPIC -o "$out/regroup/_native$suffix" "$OBJECTS"/*.o libregroup_native.a @link.words \
  || die "linking failed: no module for Python $version"
imports || die "what was compiled cannot be imported"
echo "build_module.sh: compiled _native$suffix for Python $version in $(seconds) s on $(nproc) cores"
