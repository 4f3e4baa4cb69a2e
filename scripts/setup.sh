#!/usr/bin/env bash
# Makes .venv with everything the project needs, system libraries included. Does nothing when that is done already.
# usage: bash scripts/setup.sh      PYTHON=… chooses the interpreter (3.11 to 3.14), VENV=… another folder than .venv
# Exit codes: 2 PYTHON is none of these, 6 something is missing: the last line says what, and what to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${VENV:-.venv} stamp=${VENV:-.venv}/.installed broken=${VENV:-.venv}/.installing
libraries=(libgl1 libglib2.0-0)  # Procgen draws with Qt, which wants these two whether or not there is a screen
# Gigabytes to download and then on disk, in tenths, measured: with torch's CUDA build, with its CPU build, without torch.
cuda=(29 64) cpu=(5 19) rest=(3 12)

say() { printf '== %s\n' "$*" >&2; }
fail() { say "$1"; exit "${2:-6}"; }
tenths() { echo "$(($1 / 10)).$(($1 % 10)) GB"; }

# --- System packages: installed where root and apt are at hand, otherwise the exact command is printed.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
may_install() { command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; }
apt_get() { as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -qq "$@" 2>&1 >/dev/null; }
apt_install() {
  may_install || fail "missing on this system: $*; please run as root: apt-get update && apt-get install -y $*"
  say "installing with apt-get: $*"
  local said
  apt_get install -y --no-install-recommends "$@" >/dev/null && return
  said=$(apt_get update) || true
  said+=$'\n'$(apt_get install -y --no-install-recommends "$@") && return
  fail "apt-get cannot install $*: $(grep -m1 '^[EW]: ' <<<"$said" || echo 'it does not say why')"
}

# --- The interpreter
fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' >/dev/null 2>&1; }
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
find_python() {
  local candidate
  for candidate in python3.14 python3.13 python3.12 python3.11 python3 \
    $(uv python find --no-python-downloads '>=3.11,<3.15' 2>/dev/null); do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then command -v "$candidate"; return; fi
  done
}
newest_of_apt() { apt-cache --names-only search '^python3\.1[1-4]$' 2>/dev/null | awk '{print $1}' | sort -V | tail -1; }
how_to_get_python() {
  local newest
  if command -v uv >/dev/null; then echo "uv python install 3.14"
  elif command -v apt-get >/dev/null; then
    newest=$(newest_of_apt)
    echo "as root: apt-get update && apt-get install -y ${newest:-python3} ${newest:-python3}-venv ${libraries[*]}"
  elif command -v dnf >/dev/null; then echo "as root: dnf install -y python3.13 mesa-libGL glib2"
  elif command -v zypper >/dev/null; then echo "as root: zypper install -y python313 Mesa-libGL1 libglib-2_0-0"
  elif command -v pacman >/dev/null; then echo "as root: pacman -S --noconfirm python libglvnd glib2"
  else echo "the installer from https://www.python.org/downloads/"
  fi
}
# A set-up that was broken off leaves its mark. An environment without one is kept, with what its owner put into it.
whole() { [ ! -e "$broken" ] && [ -x "$venv/bin/python" ] && fits "$venv/bin/python" && pip --version >/dev/null 2>&1; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

if [ -n "${PYTHON:-}" ]; then
  python=$(command -v "$PYTHON") && [ -n "$(version_of "$python")" ] || fail "PYTHON=$PYTHON cannot be run" 2
  fits "$python" || fail "PYTHON=$PYTHON is Python $(version_of "$python"); 3.11 to 3.14 would do" 2
elif whole; then python=$venv/bin/python
else
  python=$(find_python)
  if [ -z "$python" ] && may_install && ! command -v uv >/dev/null; then
    apt_install python3 python3-venv "${libraries[@]}"
    python=$(find_python)
    newest=$(newest_of_apt || true)
    [ -n "$python" ] || [ -z "$newest" ] || { apt_install "$newest" "$newest-venv"; python=$(find_python); }
  fi
  [ -n "$python" ] || fail "Python 3.11 to 3.14 is needed and this system has none; get it with: $(how_to_get_python)"
fi
version=$(version_of "$python")

has_library() { "$python" -c "import ctypes; ctypes.CDLL('$1')" 2>/dev/null; }
has_library libGL.so.1 && has_library libglib-2.0.so.0 || apt_install "${libraries[@]}"

wanted="$version $(cat pyproject.toml constraints.txt scripts/setup.sh | sha256sum)"
finished() { [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; }
finished && exit 0

# --- One set-up at a time; what it was waiting for may be all that it wanted.
[ -w . ] || fail "$PWD cannot be written; make a copy of the project in a folder of your own"
if command -v flock >/dev/null; then
  exec 9>.setup.lock
  flock -n 9 || { say "another set-up is at work in $PWD; waiting for it"; flock 9; }
fi
finished && exit 0

# --- The environment
"$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install "python$version-venv"
if ! whole || [ "$(version_of "$venv/bin/python")" != "$version" ]; then
  [ ! -e "$broken" ] || say "an earlier set-up was broken off; beginning anew"
  "$python" -m venv --clear "$venv" || fail "$venv cannot be made with $python; the lines above say why"
  fresh=yes
fi

# Which torch: the CPU build where there is no NVIDIA GPU and the user's index, or uv, offers one.
pinned=$("$venv/bin/python" - <<'PYTHON'
from pip._vendor.packaging.requirements import Requirement
pins = (Requirement(line.split("#")[0]) for line in open("constraints.txt") if line.startswith("torch=="))
print(next(str(pin.specifier) for pin in pins if pin.marker is None or pin.marker.evaluate()).removeprefix("=="))
PYTHON
)
has_gpu() { [ -e /proc/driver/nvidia/version ] || nvidia-smi >/dev/null 2>&1; }
has_torch() { "$venv/bin/python" -c "from importlib.metadata import version; assert version('torch').split('+')[0] == '$pinned'" 2>/dev/null; }
with_uv() { command -v uv >/dev/null && uv pip install --python "$venv/bin/python" --torch-backend cpu "$@" "torch==$pinned"; }
torch="torch==$pinned" size=("${cuda[@]}") build="with its CUDA libraries"
if has_torch; then
  size=("${rest[@]}") build="which is there already"
elif ! offered=$(pip --retries 1 index versions torch 2>&1); then
  [ -z "${fresh:-}" ] || rm -rf "$venv"
  reason=$(grep -o '\[Errno[^)]*' <<<"$offered" | head -1 | tr -d "'")
  fail "no package index offers torch, ${reason:-is there a network?} (pip config list shows where pip looks); nothing was installed"
elif has_gpu; then
  ! grep -qE "[ (]${pinned//./\\.}[,)]" <<<"$offered," || torch+=",!=$pinned+cpu"  # pip would prefer it
elif grep -qE "[ (]${pinned//./\\.}\+cpu\b" <<<"$offered"; then
  torch="torch==$pinned+cpu" size=("${cpu[@]}") build="the build for CPUs, as there is no NVIDIA GPU"
elif with_uv --quiet --dry-run 2>/dev/null; then
  torch="" size=("${cpu[@]}") build="the build for CPUs through uv, as there is no NVIDIA GPU"
fi

# While it works, pip keeps what it has downloaded twice: in its cache and beside the packages.
most=$((size[1] + 2 * size[0])) free=$(df -Pk . | awk 'NR == 2 {print int($4 / 97656)}')
say "installing into $venv with Python $("$python" -c 'import platform; print(platform.python_version())') ($python): torch $pinned, $build"
say "about $(tenths "${size[0]}") to download and $(tenths "${size[1]}") on disk, at most $(tenths $most) while it works; $(tenths "$free") are free"
[ -n "${fresh:-}" ] || most=0  # how much of it is there already is unknown
[ "$free" -ge "$most" ] || { rm -rf "$venv"; fail "the disk of $PWD has too little space: $(tenths $most) are needed, $(tenths "$free") are free"; }

: > "$broken"
rm -f "$stamp"
export TMPDIR="$PWD/$venv/.downloads"  # /tmp is often in memory
mkdir -p "$TMPDIR"
again="the packages could not be installed; the lines above say why, and the same command begins anew"
[ -n "$torch" ] || with_uv >&2 || fail "$again"
pip install -c constraints.txt -e '.[tensorboard,video,fast,cluster,dev]' ${torch:+"$torch"} >&2 || fail "$again"
rm -rf "$TMPDIR"

# --- Procgen's engine, and a look whether all of it works
"$venv/bin/rlcb" doctor --fix >&2 || fail "the installation does not work; the line marked ✗ says why"

printf '%s' "$wanted" > "$stamp"
rm "$broken"
say "done"
