# Sourced by ./dev: the checks of style and of naming. Each returns non-zero if a file needs work.

cxx_files() { git -c core.quotepath=off ls-files -co --exclude-standard '*.h' '*.cc' | existing; }
cxx_sources() { cxx_files | grep '\.cc$'; }
existing() { while read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done; }

lint_format() {
  cxx_files | tr '\n' '\0' | xargs -0 -r -P "$JOBS" -n 16 clang-format --dry-run --Werror || return 1
}

lint_python() {
  local rc=0
  .venv/bin/ruff check . || rc=1
  .venv/bin/ruff format --check . || rc=1
  return $rc
}

# A dead link or anchor is an error (with --quiet it is not even counted). Pages and navigation: mkdocs.yml, tools/docs/site_of_docs.py.
build_docs() { NO_MKDOCS_2_WARNING=1 timeout --foreground 300 .venv/bin/python -m mkdocs build --strict </dev/null; }

# With the flags that each source has by itself, not in a group; only files that some preset of this machine compiles.
lint_tidy() {
  cmake --preset lint -DREGROUP_BENCH=ON >/dev/null </dev/null || return 1
  local schema options  # by CMake's target they would wait for the libraries that those of their folder link
  read -ra options <cmake/flatc.options
  while read -r schema; do
    flatc "${options[@]}" -o "build-lint/generated/$(dirname "$schema")" "$schema" || return 1
  done < <(git ls-files '*.fbs')
  find "${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/regroup/tidy" -type f -mtime +30 -delete 2>/dev/null
  tidy_files "$@" | timeout --foreground 3600 xargs -r -P "$JOBS" -n 1 tools/dev/tidy
}

tidy_files() {
  { if (($#)); then printf '%s\n' "$@"; else cxx_sources; fi; } | while read -r file; do
    if grep -qF "\"$PWD/$file\"" build-lint/compile_commands.json; then echo "$file"; fi
  done
}
