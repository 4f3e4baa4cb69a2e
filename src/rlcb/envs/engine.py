"""Procgen's engine on this machine: where it is, which build it is, and how it is fetched.

The engine is a shared library in the package procgen-mirror, with libraries of its own and pictures beside it. It knows
nothing of Python, so any of the package's builds serves every version of Python; the package is never imported and need
not be installed. All files keep the places that they have in the package: the library finds its own libraries by them.
"""

import base64
import contextlib
import csv
import errno
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rlcb.console import note
from rlcb.errors import ResourceError
from rlcb.files import cache_folder, read_regular, refuse_unwritable, sha256_of, take_lock

VERSION = "0.10.7"
FOLDER = "RLCB_PROCGEN"  # environment variable: the folder with the engine, in place of all others
OFFLINE = "RLCB_OFFLINE"  # environment variable: set to 1, nothing is fetched
WHEEL = f"procgen_mirror-{VERSION}-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
_WHEEL_HASH = "50a87a648e57290fd90b720130e7b477e318a2120ec8732b3c1622d52629bf93"
_SIZES = "48 MB, unpacked 85 MB"
# The library in the package's builds for Python 3.11 and 3.12: all games do the same in both, bit for bit.
_BUILDS = (
    "sha256:4ce4e3d8e4dcae5a112bfcd6f8ee910ab7a2183a1230f0cbec38502fb5e1b0e2",
    "sha256:4cf5888b8537471e247d5ef78b72b7d253c24f510150f3d61787a32a5a820a44",
)
_LIBRARY = Path("procgen", "data", "prebuilt", "libenv.dylib" if sys.platform == "darwin" else "libenv.so")
_PARTS = ("procgen/data", "procgen_mirror.libs", f"procgen_mirror-{VERSION}.dist-info")  # of the package
_LARGEST = 100 * 2**20  # bytes of a library
_ROOM = 300 * 2**20  # bytes of disk that fetching takes for a while
_PATIENCE = 1800.0  # seconds that one process waits for another one to fetch the engine
_SCRATCH = ".procgen-"  # begins the names of unfinished folders


def library(folder: Path) -> Path:
    """The engine's library in a folder with the engine."""
    return folder / _LIBRARY


def pictures(folder: Path) -> Path:
    """The pictures that games are drawn with."""
    return folder / "procgen" / "data" / "assets"


def fetched_to() -> Path:
    """Where an engine that was fetched is kept."""
    return cache_folder() / f"procgen-{VERSION}"


def find() -> Path | None:
    """The folder with the engine: the one that the user has set, our own or an installed package's; None: nowhere."""
    if given := os.environ.get(FOLDER):
        folder = Path(given).expanduser().absolute()
        if not library(folder).is_file():
            raise ResourceError(f"{FOLDER}={given}: Procgen's engine is not there; it would be {library(folder)}")
        return folder
    with contextlib.suppress(ResourceError):  # there is no home directory
        if library(fetched_to()).is_file():
            return fetched_to()
    package = importlib.util.find_spec("procgen")  # found, not imported
    places = [Path(place).parent for place in (package.submodule_search_locations or [])] if package else []
    return next((place for place in places if library(place).is_file()), None)


@cache
def build_in(folder: Path) -> str:
    """Which build of the engine is in a folder: the hash of its library."""
    try:
        return f"sha256:{sha256_of(library(folder), _LARGEST)}"
    except OSError as error:
        raise ResourceError(f"{library(folder)}: cannot be read: {error.strerror}") from None


def build() -> str:
    """Which build is used here; empty where there is none."""
    folder = find()
    return build_in(folder) if folder else ""


def release(build: str) -> str:
    """The version that a build belongs to; one that is not known is a version of its own."""
    return VERSION if build in _BUILDS else build


def problem(folder: Path) -> str | None:
    """What is wrong with the files in a folder with the engine, as far as the package's own list of them tells."""
    lists = list(folder.glob("procgen*.dist-info/RECORD"))
    for path in lists:
        for name, digest, size in csv.reader(read_regular(path, _LARGEST).decode().splitlines()):
            ours, file = name.startswith("procgen/data/") or ".libs/" in name, folder / name
            if ours and not (file.is_file() and file.stat().st_size == int(size)):
                return f"{file} is missing or damaged"
            if name == _LIBRARY.as_posix() and digest != _as_listed(build_in(folder)):
                return f"{file} is damaged"
    if folder == fetched_to() and not (lists and release(build_in(folder)) == VERSION):
        return f"{folder} is not what was fetched"
    return None if pictures(folder).is_dir() else f"{pictures(folder)} is missing"


def _as_listed(build: str) -> str:
    """A hash as a package's list of files writes it."""
    digest = base64.urlsafe_b64encode(bytes.fromhex(build.removeprefix("sha256:"))).decode()
    return f"sha256={digest.rstrip('=')}"


def make_ready() -> None:
    """Have an engine here that is whole, if need be by fetching it; a ResourceError says why there is none.

    This is for the process of a command; its workers find what it has made ready.
    """
    folder = find()
    found = problem(folder) if folder else None
    if folder is None or (found and folder == fetched_to()):
        fetch("cannot be used here" if found else "is not on this machine")
    elif found:
        raise ResourceError(f"Procgen's engine cannot be used: {found}; install it again")


def unsupported() -> str | None:
    """Why there is no engine to be fetched for this system; None: there is one."""
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        return None
    return (
        f"Procgen has an engine for Linux on x86-64 only, this is {platform.system()} on {platform.machine()}; "
        "Gymnasium and Atari games run here, for example --env CartPole-v1"
    )


def fetch(state: str) -> None:
    """Fetch the engine into our cache; processes that want it at the same time wait for one of them.

    `state`: what is said of the engine that is there or is not, where it cannot be fetched.
    """
    if unfit := unsupported():
        raise ResourceError(unfit)
    folder, target = cache_folder(), fetched_to()
    by_hand = f"{WHEEL}, as `pip download` gets it elsewhere, can be put into {folder}"
    if os.environ.get(OFFLINE, "0") not in ("", "0") and not (folder / WHEEL).exists():
        raise ResourceError(f"Procgen's engine {state}, and {OFFLINE} forbids to fetch it; {by_hand}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_unwritable(folder)
        if shutil.disk_usage(folder).free < _ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with _one_at_a_time(folder / f"{_SCRATCH}lock"):
            if target.is_dir() and problem(target) is None:
                return  # another process was faster
            for left in folder.glob(f"{_SCRATCH}*/"):  # by processes that were killed
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
                if reason := _install(Path(scratch), folder):
                    raise ResourceError(f"Procgen's engine {state} and cannot be fetched: {reason}; {by_hand}")
                _put(Path(scratch), target)
            build_in.cache_clear()
    except OSError as error:
        reason = f"{folder}: {error.strerror or error}; XDG_CACHE_HOME chooses another folder"
        raise ResourceError(f"Procgen's engine {state} and cannot be fetched: {reason}") from None


def _install(scratch: Path, folder: Path) -> str | None:
    """Have pip or uv install the package into a folder, for Python 3.12 and this system; returns what went wrong."""
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"procgen-mirror=={VERSION} --hash=sha256:{_WHEEL_HASH}\n")
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-compile"]
        command += ["--implementation", "cp", "--abi", "cp312", "--platform", "manylinux2014_x86_64", "--retries", "2"]
    elif shutil.which("uv"):
        command = ["uv", "pip", "install", "--python", sys.executable, "--python-platform", "x86_64-manylinux2014"]
    else:
        return "neither pip nor uv is here"
    command += ["--target", str(scratch / "package"), "--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
    command += ["--require-hashes", "-r", str(wanted)]
    if (folder / WHEEL).exists():
        command += ["--no-index", "--find-links", str(folder)]
        note(f"unpacking Procgen's engine from {folder / WHEEL}")
    else:
        note(f"fetching Procgen's engine ({WHEEL}, {_SIZES}) into {folder}")
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"},
    )  # fmt: skip
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if any("hash" in line.lower() and "match" in line.lower() for line in lines):
        return f"the hash of {folder / WHEEL if (folder / WHEEL).exists() else 'what the package index gave'} is wrong"
    if any("Errno" in line or "os error" in line for line in lines):  # as pip and uv write it
        return "the package index cannot be reached"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    return " ".join(errors[-1:]) or f"{command[0]} failed"


def _put(scratch: Path, target: Path) -> None:
    """Move what is needed of the package to its place, whole."""
    package, whole = scratch / "package", scratch / "whole"
    for part in _PARTS:
        (whole / part).parent.mkdir(parents=True, exist_ok=True)
        (package / part).rename(whole / part)
    if target.exists():
        target.rename(scratch / "damaged")
    whole.rename(target)


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold a lock; without it after a long wait, as what is done here is safe beside others, only done twice."""
    waited_since, said = time.monotonic(), False
    while (descriptor := take_lock(path)[0]) is None and time.monotonic() - waited_since < _PATIENCE:
        if not said:
            note("waiting for another process that is fetching Procgen's engine")
            said = True
        time.sleep(0.2)
    try:
        yield
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)
