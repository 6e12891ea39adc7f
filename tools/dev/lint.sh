# Sourced by ./dev: the checks of style and of naming. Each returns non-zero if a file needs work.

cxx_files() { git ls-files -co --exclude-standard '*.h' '*.cc' | grep -v '_generated\.h$' | existing; }
cxx_sources() { cxx_files | grep '\.cc$'; }
existing() { while read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done; }

lint_format() {
  cxx_files | xargs -r -P "$JOBS" -n 16 clang-format --dry-run --Werror || return 1
}

lint_python() {
  local rc=0
  .venv/bin/ruff check . || rc=1
  .venv/bin/ruff format --check . || rc=1
  return $rc
}

# Only files that the dev preset compiles: the flags of the others are unknown.
lint_tidy() {
  cxx_sources | while read -r file; do
    if grep -qF "\"$PWD/$file\"" build/compile_commands.json; then echo "$file"; fi
  done | timeout --foreground 3600 xargs -r -P "$JOBS" -n 1 tools/dev/tidy
}
