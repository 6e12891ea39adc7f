# Sourced by ./dev: installs what a verb needs, and costs well under 0.3 s when nothing is missing.
#   setup VERB         what the table below names for VERB; Python packages that building does not need are installed
#                      in the background, while the verb compiles
#   setup_finish       waits for them; the verb calls it before it runs anything that imports them

# verb            Debian packages: requirements/NAME.debian     Python packages: NAME.txt, now | in the background
needs_of() {
  case $1 in
    build)        echo "build                                    build |" ;;
    fuzz)         echo "build gtest fuzz                         build |" ;;
    demo)         echo "build                                    build | demo" ;;
    test | chaos) echo "build gtest test format                     build | demo lint test mpich impi docs" ;;
    check)        echo "build gtest test lint                    build | demo lint test mpich impi docs" ;;
    lint)         echo "build gtest lint                         build lint |" ;;
    docs)         echo "docs                                     docs |" ;;
    gpu-test)     echo "build                                    build |" ;;
    bench-*)      bench_needs_of "${1#bench-}" ;;
    *) die "setup: no such verb: $1" ;;
  esac
}

# Each bench installs its own rivals.
bench_needs_of() {
  case $1 in
    allocators)                     echo "build test         build | demo" ;;  # a Slurm of its own
    placement | scale | versions)   echo "build              build | demo" ;;
    collectives | launch | output)  echo "build mpi          build | demo bench mpich" ;;
    hosts)                          echo "build mpi hosts    build | demo bench" ;;
    recovery)                       echo "build hosts        build | demo bench" ;;
    loop)                           needs_of test ;;
    *)                              echo "build              build | demo bench" ;;
  esac
}

SETUP_JOB=

setup() {
  local needs packages now later
  needs=$(needs_of "$1")
  read -r packages now later < <(awk -F'   +| \\| ?' '{gsub(/ /, ",", $1); gsub(/ /, ",", $2); gsub(/ /, ",", $3); print $1, $2, $3}' <<<"$needs")
  setup_packages "$packages"
  setup_venv
  # shellcheck disable=SC2086 # words of the table
  setup_python ${now//,/ }
  export PYTHONDONTWRITEBYTECODE=  # what is installed is compiled where it is first imported
  [[ -n ${later:-} ]] || return 0
  # shellcheck disable=SC2086
  if python_is_ready ${later//,/ }; then return; fi
  say "installing Python packages in the background: ${later//,/ }"
  # shellcheck disable=SC2086
  (setup_python ${later//,/ }) >"$LOGS/setup-python.log" 2>&1 &
  SETUP_JOB=$!
  AT_EXIT+=('[[ -z $SETUP_JOB ]] || kill "$SETUP_JOB"')
}

setup_finish() {
  [[ $SETUP_JOB ]] || return 0
  local start=$SECONDS
  if kill -0 "$SETUP_JOB" 2>/dev/null; then say "waiting for the Python packages"; fi
  wait "$SETUP_JOB" || { tail -n 40 "$LOGS/setup-python.log"; die "the Python packages could not be installed; whole log: $LOGS/setup-python.log"; }
  SETUP_JOB=
  ((SECONDS - start < 2)) || say "waited $((SECONDS - start)) s for the Python packages"
}

# usage: setup_packages NAME,...: requirements/NAME.debian
setup_packages() {
  local lists=${1//,/ } list package installed missing=()
  command -v dpkg-query >/dev/null || { say "no dpkg here: requirements/*.debian name what must be installed ($lists)"; return; }
  local all=()
  for list in $lists; do mapfile -t -O "${#all[@]}" all < <(grep -v '^#' "requirements/$list.debian"); done
  installed=" $(dpkg-query -W -f='${Package}:${db:Status-Status} ' "${all[@]}" 2>/dev/null || true)"
  for package in "${all[@]}"; do
    # The kubectl of another repository has the same path: dpkg would refuse both.
    if [[ $package == kubernetes-client ]] && command -v kubectl >/dev/null; then continue; fi
    [[ $installed == *" $package:installed "* ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  ((EUID == 0)) || die "packages are missing; as root run: apt-get install -y ${missing[*]}"
  progress "apt-update" "reading the lists of Debian packages" apt_get update || say "apt-get update failed; the lists that are there are used"
  [[ " ${missing[*]} " != *" gridengine-master "* ]] || answer_questions
  progress "apt-install-${lists// /-}" "installing ${#missing[@]} Debian packages and what they need" \
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

# dpkg's own fsync of each file costs more than the rest where a disk is slow; a machine that loses power meanwhile
# installs again.
apt_get() {
  DEBIAN_FRONTEND=noninteractive timeout --foreground 1800 apt-get -y -q -o Acquire::Retries=3 -o Acquire::http::Timeout=60 \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io "$@" </dev/null
}

setup_venv() {
  if .venv/bin/python -c 'import pip' 2>/dev/null; then return; fi  # not where the folder was moved, or Python replaced
  progress venv "making the virtual environment .venv" python3 -m venv --clear .venv || die "python3 -m venv .venv failed"
}

# A stamp holds the hash of the requirement file that was installed last.
stamp_of() { echo ".venv/.installed-$1"; }
is_installed() {
  local stamp
  stamp=$(stamp_of "$1")
  [[ -f $stamp && $(<"$stamp") == "$(sha256sum <"requirements/$1.txt")" ]]
}
python_is_ready() {
  local name
  for name; do is_installed "$name" || return 1; done
}

setup_python() {
  local name
  for name; do is_installed "$name" || install_python "$name"; done
}

# Bytecode: only of what is imported, once, here; pip would compile all of torch and TensorFlow on one core.
install_python() {
  local options=()
  case $1 in  # their mpicc and mpiexec have the names of Open MPI's
    mpich) options=(--prefix "$PWD/.venv/mpich") ;;
    impi)  options=(--prefix "$PWD/.venv/impi" --no-deps) ;;
  esac
  exec 9>.venv/.lock  # another ./dev may be installing
  flock -n 9 || say "another ./dev installs into .venv: waiting for it"
  flock -w 3600 9 || die "another ./dev has been installing into .venv for an hour"
  progress "pip-$1" "installing requirements/$1.txt" timeout --foreground 3600 .venv/bin/python -m pip install --no-input --no-compile --retries 5 \
    --progress-bar off "${options[@]}" -r "requirements/$1.txt" || die "pip install -r requirements/$1.txt failed"
  [[ $1 != demo ]] || PYTHONDONTWRITEBYTECODE= .venv/bin/python -c 'import matplotlib.pyplot, sklearn.datasets, torch' </dev/null
  exec 9>&-
  sha256sum <"requirements/$1.txt" >"$(stamp_of "$1")"
}
