#!/usr/bin/env bash
# Makes .venv with everything the project needs, system libraries included. Does nothing when that is done already.
# usage: bash scripts/setup.sh          PYTHON=… chooses the interpreter (3.11 or 3.12)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*" >&2; }

# System packages: installed where root and apt are at hand, otherwise the exact command is printed.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >/dev/null; }
apt_install() {
  if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
    say "installing $*"
    apt_get install -y --no-install-recommends "$@" 2>/dev/null && return
    apt_get update && apt_get install -y --no-install-recommends "$@" && return
  fi
  say "missing on this system: $*; please run as root: apt-get update && apt-get install -y $*"
  exit 6
}
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; }
find_python() {
  for candidate in ${PYTHON:-} python3.11 python3.12 python3; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then echo "$candidate"; return; fi
  done
}

libraries=(libgl1 libglib2.0-0)
python=$(find_python)
[ -n "$python" ] || { apt_install python3 python3-venv "${libraries[@]}"; python=$(find_python); }
[ -n "$python" ] || { say "Python 3.11 or 3.12 is needed and this system offers neither"; exit 6; }

# Procgen draws with Qt, which wants these two whether or not there is a screen.
has_library() { "$python" -c "import ctypes; ctypes.CDLL('$1')" 2>/dev/null; }
has_library libGL.so.1 && has_library libglib-2.0.so.0 || apt_install "${libraries[@]}"

stamp=.venv/.installed
wanted=$(cat pyproject.toml constraints.txt scripts/setup.sh | sha256sum)
[ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && exit 0

version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
"$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install "$version-venv"
say "making .venv with $("$python" --version) and installing packages (some minutes the first time)"
# A set-up that was broken off can leave an environment without pip behind.
whole() { [ -x .venv/bin/python ] && fits .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }
whole || "$python" -m venv --clear .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tensorboard,video,fast,cluster,dev]'
printf '%s' "$wanted" > "$stamp"
say "done"
