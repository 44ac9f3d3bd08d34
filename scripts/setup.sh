# Sourced by the other scripts: `need GROUP` makes the project's virtual environment, with the packages of GROUP ("demo",
# "demo-models", "dev" or "adapter-NAME"). It returns at once if the environment is ready. $PY is its Python.
# `need GROUP beside` returns while installed packages are still being compiled, for scripts that need not wait for that.
set -euo pipefail
CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

VENV=${ASKFIRST_VENV:-.venv}
PY=$VENV/bin/python
export PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1  # no warnings that are not about this installation

say() { printf '%s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3.14 python3 python; do
    if [ -n "$candidate" ] && "$candidate" -c 'import tomllib' 2>/dev/null; then  # new in 3.11
      printf '%s' "$candidate"
      return
    fi
  done
  die "Askfirst needs Python 3.11 or newer, and none was found. Install it, or set PYTHON to its path."
}

make_venv() {
  local python=$1 said
  [ ! -e "$VENV" ] || [ -e "$VENV/pyvenv.cfg" ] || die "$VENV exists and is not a virtual environment: remove it, or set ASKFIRST_VENV."
  said=$("$python" -m venv --clear "$VENV" 2>&1) && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then  # Debian ships venv apart from Python
    apt-get update -qq >&2 || true
    apt-get install -y -qq "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" >&2 || true
    "$python" -m venv --clear "$VENV" >&2 && return
  fi
  if "$python" -m venv --clear --without-pip "$VENV" && "$python" -m pip --python "$PY" install -q pip; then
    return
  fi
  rm -rf "$VENV"
  die "$python cannot make virtual environments (on Debian and Ubuntu: apt-get install python3-venv):" "$said"
}

# False if the environment's Python is missing, too old, or was replaced by another one without the packages.
sound() { "$PY" -c 'import pip, tomllib' 2>/dev/null; }

fingerprint() {  # a hash of what an installation depends on
  "$PY" - <<'PYTHON'
import hashlib, pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text("utf-8"))
parts = [project[name] for name in ("build-system", "project", "dependency-groups")]
print(hashlib.sha256(repr((parts, sys.version_info[:2], pathlib.Path.cwd())).encode()).hexdigest())
PYTHON
}

ready() { local now; sound && now=$(fingerprint) && [ "$(cat "$VENV/askfirst-$1.stamp" 2>/dev/null)" = "$now" ]; }

install() {
  local group=$1 stamp=$VENV/askfirst-$1.stamp
  case $group in
    demo) set -- -e '.[cli,service]' ;;
    demo-models) set -- -e '.[cli,models,service]' ;;
    dev) set -- -e '.[all]' --group dev ;;
    adapter-*) set -- -e '.[encryption,postgres,sqlite,yaml]' --group adapters --group "$group" ;;
    *) die "setup.sh: no such group: $group" ;;
  esac
  say "Installing what this needs into $VENV (once) …"
  "$PY" -m pip install --help | grep -q -e '--group' || "$PY" -m pip install -qq --upgrade pip
  if "$PY" -m pip install -qq --no-compile "$@"; then
    fingerprint > "$stamp"
    case $group in
      adapter-*) ;;  # its tests load only a small part of the packages, in few processes
      *) "$PY" -m compileall -qq -j 0 "$VENV/lib" 9<&- & ;;  # on all cores and in the background; pip would use one
    esac
  else
    [ -e "$stamp" ] || die "What Askfirst needs could not be installed; pip says why above."
    say "pyproject.toml has changed but could not be installed; going on with what was installed before."
  fi
}

need() {
  local python
  ready "$1" && return
  python=$(find_python)
  exec 9<scripts/setup.sh  # one installation at a time; the lock ends when the descriptor is closed
  "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' || true
  sound || make_venv "$python"
  ready "$1" || install "$1"
  exec 9<&-
  [ "${2:-}" = beside ] || wait
}
