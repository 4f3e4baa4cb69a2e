#!/usr/bin/env bash
# Packs what the project needs on a Linux x86-64 machine that reaches no package index and has a Python with torch and
# NumPy: Procgen's engine, the system libraries that it wants, and packages. There: source FOLDER/enter.sh
# usage: bash scripts/offline.sh FOLDER [--python 3.12] [PACKAGE…]        about 45 MB; PACKAGE: more of them, by pip's name
set -euo pipefail
folder=${1:?usage: bash scripts/offline.sh FOLDER [--python 3.12] [PACKAGE…]}; shift
version=3.12
[ "${1:-}" != --python ] || { version=$2; shift 2; }
mkdir -p "$folder/lib" "$folder/packages"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh

engine=$(.venv/bin/python -c 'from rlcb.envs import engine; engine.make_ready(); print(engine.find())')
(cd "$engine" && tar --create --xz --file "$folder/engine.tar.xz" procgen/data procgen_mirror*)
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
  --python-version "$version" --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux_2_28_x86_64 --constraint constraints.txt --dest "$folder/packages" \
  annotated-types cloudpickle farama-notifications gymnasium jinja2 markdown-it-py markupsafe mdurl psutil pydantic \
  pydantic-core pygments pyyaml rich typing-extensions typing-inspection "$@"
for name in libGL.so.1 libGLX.so.0 libGLdispatch.so.0 libX11.so.6 libxcb.so.1 libXau.so.6 libXdmcp.so.6 libbsd.so.0 \
  libmd.so.0 libglib-2.0.so.0 libgthread-2.0.so.0 libpcre2-8.so.0; do
  path=$(ldconfig -p | awk -v name="$name" '$1 == name { print $NF; exit }')
  [ -z "$path" ] || cp -L "$path" "$folder/lib/"
done
cat > "$folder/enter.sh" <<'ENTER'
# source this: unpacks the folder once, and puts what is in it where the project finds it.
_from=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
_to=${TMPDIR:-/tmp}/rlcb-offline
if [ ! -e "$_to/.done" ]; then
  mkdir -p "$_to/engine" "$_to/packages"
  tar --extract --xz --directory "$_to/engine" --file "$_from/engine.tar.xz"
  for _wheel in "$_from"/packages/*.whl; do python3 -m zipfile -e "$_wheel" "$_to/packages"; done
  touch "$_to/.done"
fi
export RLCB_PROCGEN="$_to/engine" RLCB_OFFLINE=1
# Packages that are installed there come first: what is brought only fills gaps.
_installed=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$_installed:$_to/packages"
export LD_LIBRARY_PATH="$_from/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
ENTER
du -sh "$folder"
