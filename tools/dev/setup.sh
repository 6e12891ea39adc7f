# Sourced by ./dev: installs what a verb needs, and costs well under 0.3 s when nothing is missing.
#   setup NAME...   the Debian packages, then requirements/NAME.txt for each NAME into .venv; for test also
#                   requirements/mpich.txt, into .venv/mpich

setup() {
  setup_packages
  setup_venv
  local name
  for name; do setup_requirements "$name"; done
  [[ " $* " != *" test "* ]] || setup_requirements mpich --prefix "$PWD/.venv/mpich"
}

# usage: setup_packages [LIST]
setup_packages() {
  local list=${1:-requirements/debian.txt} package missing=()
  command -v dpkg-query >/dev/null || { say "no dpkg here: $list names what must be installed"; return; }
  local installed
  installed=" $(dpkg-query -W -f='${Package}:${db:Status-Status} ' $(package_list "$list") 2>/dev/null || true)"
  for package in $(package_list "$list"); do
    [[ $installed == *" $package:installed "* ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  ((EUID == 0)) || die "packages are missing; as root run: apt-get install -y ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  apt_get update || say "apt-get update failed; trying with the lists that are there"
  answer_questions
  apt_get install --no-install-recommends "${missing[@]}" || die "apt-get install failed: ${missing[*]}"
}

# Grid Engine is to be configured for this machine; it asks when it is installed, and never again.
answer_questions() {
  local package
  for package in gridengine-master gridengine-exec gridengine-client; do
    printf "$package shared/%s\n" "gridenginemaster string $(hostname)" "gridenginecell string default" \
      "gridengineconfig boolean true"
  done | debconf-set-selections
}

package_list() { grep -v '^#' "$1"; }

apt_get() {
  DEBIAN_FRONTEND=noninteractive timeout 1800 apt-get -y -q -o Acquire::Retries=3 -o Acquire::http::Timeout=60 \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

setup_venv() {
  [[ -x .venv/bin/pip ]] && return
  say "making the virtual environment .venv"
  python3 -m venv .venv </dev/null || die "python3 -m venv .venv failed"
}

# usage: setup_requirements NAME [OPTIONS OF PIP]
# The stamp holds the hash of the requirement file that was installed last.
setup_requirements() {
  local file=requirements/$1.txt stamp=.venv/.installed-$1 hash
  hash=$(sha256sum <"$file")
  [[ -f $stamp && $(<"$stamp") == "$hash" ]] && return
  say "installing $file"
  exec 9>.venv/.lock  # another ./dev may be installing
  flock -w 3600 9 || die "another ./dev has been installing into .venv for an hour"
  timeout 3600 .venv/bin/pip install --no-input --retries 5 --progress-bar off "${@:2}" -r "$file" </dev/null ||
    die "pip install -r $file failed"
  exec 9>&-
  echo "$hash" >"$stamp"
}
