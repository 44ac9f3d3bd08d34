# Sourced by the other scripts: `need GROUP` puts the project's virtual environment in place with what
# GROUP asks for ("demo" or "dev"), in a second if it is there already. Leaves $PY set to its Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${ASSENT_VENV:-.venv}
PY=$VENV/bin/python

die() { printf '%s\n' "$*" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3.14 python3 python; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s' "$candidate"
      return
    fi
  done
  die "Assent needs Python 3.11 or newer, and none was found. Install it, or set PYTHON to its path."
}

make_venv() {
  local python
  python=$(find_python)
  "$python" -m venv "$VENV" 2>/dev/null && return
  rm -rf "$VENV"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then  # Debian ships venv apart from Python
    apt-get update -qq && apt-get install -y -qq "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    "$python" -m venv "$VENV" && return
  fi
  die "$python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"
}

need() {
  local group=$1 stamp
  [ -x "$PY" ] && "$PY" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { rm -rf "$VENV"; make_venv; }
  stamp=$("$PY" -c 'import hashlib, pathlib, sys; print(hashlib.sha256(pathlib.Path("pyproject.toml").read_bytes() + repr((sys.version, str(pathlib.Path.cwd()))).encode()).hexdigest())')
  [ "$(cat "$VENV/assent-$group.stamp" 2>/dev/null)" = "$stamp" ] && return
  printf 'Installing what this needs into %s (once) …\n' "$VENV" >&2
  "$PY" -m pip install --quiet --upgrade pip 2>&1 | grep -v '^WARNING: Location' >&2 || true
  case $group in
    demo) set -- -e '.[cli]' ;;
    dev) set -- -e '.[all]' --group dev ;;
    *) die "setup.sh: no such group: $group" ;;
  esac
  "$PY" -m pip install --quiet "$@"
  printf '%s' "$stamp" > "$VENV/assent-$group.stamp"
}
