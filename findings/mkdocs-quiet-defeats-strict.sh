#!/usr/bin/env bash
# MkDocs: `mkdocs build --strict --quiet` ends with status 0 although pages have dead links.
# Versions: MkDocs 1.6.1 (PyPI package mkdocs 1.6.1), Python 3.11.
#
# --strict promises to end with an error at any warning. It counts the warnings that its log prints; --quiet raises the
# log's level above warnings, so that none is counted: the same folder fails without --quiet and passes with it. A CI
# that wants a short log thus stops finding dead links, in silence.
#
# Output seen:
#   --strict: status 1, Aborted with 1 warnings in strict mode!
#   --strict --quiet: status 0,
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH
python3 -m venv "$dir/venv"
timeout 600 "$dir/venv/bin/pip" install --quiet mkdocs==1.6.1
mkdir "$dir/docs"
echo 'site_name: Example' >"$dir/mkdocs.yml"
echo 'See [the other page](other.md).' >"$dir/docs/index.md"

build() {
  local status=0
  (cd "$dir" && timeout 60 venv/bin/mkdocs build "$@" >"$dir/out" 2>&1) || status=$?
  echo "$*: status $status, $(grep -o 'Aborted with.*' "$dir/out" || true)" | tee -a "$dir/seen"
}
build --strict
build --strict --quiet
echo "seen: $(sed -n 2p "$dir/seen")"
[ "$(sed -n 1p "$dir/seen")" = '--strict: status 1, Aborted with 1 warnings in strict mode!' ]
[ "$(sed -n 2p "$dir/seen")" = '--strict --quiet: status 0, ' ]
