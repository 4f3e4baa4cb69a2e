"""What this machine has and how its threads are divided: the only place that sets thread counts or the allocator."""

import ctypes
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcb import __version__
from rlcb.errors import UsageError

if TYPE_CHECKING:
    from psutil import Process

# glibc's mallopt parameters (malloc.h).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_ROOT = Path(__file__).resolve().parents[2]  # of the checkout, if this runs from one
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# The vector instruction sets that matter for speed.
_NOTABLE_FLAGS = ("avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16")

# How a suite tells a run that it shares the machine: runs beside it, and the cores of all of them together.
BESIDE_VARIABLE, CORES_VARIABLE = "RLCB_JOBS_BESIDE", "RLCB_MACHINE_CORES"


def usable_cpus() -> int:
    """Cores this process may use: the smaller of its affinity and its cgroup's quota, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpu_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def cgroup_cpu_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """The tightest CPU quota of this process's cgroups in cores, or None where nothing limits it."""
    quotas = (_quota_of(folder) for folder in cgroup_folders("cpu", root, membership))
    return min((quota for quota in quotas if quota), default=None)


def cgroup_folders(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """The folders of this process's cgroups that can limit what a controller controls, version 2 and 1."""
    for line in read_system_file(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        folder = base / path.lstrip("/")
        # A container sees its own group as the root, so every level that can be read counts.
        for level in (folder, *folder.parents):
            yield level
            if level == base:
                break


def _quota_of(folder: Path) -> float | None:
    """The quota written in one cgroup folder, version 2 or 1."""
    words = (
        read_system_file(folder / "cpu.max")
        or f"{read_system_file(folder / 'cpu.cfs_quota_us')} {read_system_file(folder / 'cpu.cfs_period_us')}"
    )
    try:
        quota, period = map(float, words.split())
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def jobs_beside() -> int:
    """How many other runs of a suite can share the machine with this one."""
    return _told(BESIDE_VARIABLE)


def machine_cores() -> int:
    """Usable cores of this machine, also those that a suite gave to other runs."""
    return max(_told(CORES_VARIABLE), usable_cpus())


def _told(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def read_system_file(path: Path) -> str:
    """The text of a file of /proc or /sys; empty where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def prepare_process(num_threads: int | None) -> int:
    """Set the allocator, the number of threads and how they wait, before torch is imported; returns that number."""
    threads = num_threads or usable_cpus()
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    # OpenMP's threads sleep while they wait, unless the user wants otherwise. Threads that spin keep the core from the
    # process they compete with: two runs at once then make a fifth of the speed they could. A run alone on its cores
    # loses nothing measurable.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    return threads


def keep_freed_memory() -> bool:
    """Make glibc reuse freed memory instead of returning it: activations else fault in page by page every time."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, 64 * 2**20))
    return all(libc.mallopt(key, value) == 1 for key, value in settings)


def resolve_device(wanted: str, num_threads: int | None = None) -> str:
    """`cpu` or `cuda`; `auto` takes cuda where torch sees one, and asking for a missing one is an error.

    `num_threads`: what to prepare this process for if torch has to be imported.
    """
    if wanted == "cpu":
        return "cpu"
    problem = cuda_problem(num_threads)
    if problem is None:
        return "cuda"
    if wanted == "cuda":
        raise UsageError(f"--device cuda: {problem}; or use --device cpu")
    return "cpu"


def cuda_problem(num_threads: int | None = None) -> str | None:
    """Why torch cannot use a GPU here, and what would help; None where it can.

    `num_threads`: what to prepare this process for before torch is imported.
    """
    prepare_process(num_threads)
    import torch

    usable, said = False, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            usable = torch.cuda.is_available()
            if usable:
                torch.cuda.init()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            usable, said = False, str(error)
    if usable:
        for one in caught:  # not about what was asked here
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return None
    said = said or "".join(str(one.message) for one in caught[:1])
    if torch.version.cuda is None and torch.version.hip is None:
        gpu = ", ".join(describe_gpus()["gpus"])
        if not gpu:
            return f"this machine has no NVIDIA GPU, and this torch ({torch.__version__}) is built for CPUs"
        command = f"pip uninstall -y torch && pip install torch=={torch.__version__.split('+')[0]}"
        return f"this torch ({torch.__version__}) is built for CPUs; {gpu} needs one with CUDA: {command}"
    return _driver_problem(said, f"torch {torch.__version__}, which is built for CUDA {torch.version.cuda}")


def _driver_problem(said: str, needs: str) -> str:
    """Why a torch that is built for CUDA (`needs` describes it) sees no GPU; `said`: what it said about that."""
    found = describe_gpus()
    gpus, driver = ", ".join(found["gpus"]), found["gpu_driver"]
    too_old = re.search(r"driver on your system is too old \(found version (\d+)\)", said)
    if too_old:
        major, rest = divmod(int(too_old[1]), 1000)
        version = f" {driver}" if driver else ""
        return f"the NVIDIA driver{version} (CUDA {major}.{rest // 10}) is too old for {needs}; install a newer driver"
    if not gpus and not driver:
        return "no NVIDIA driver found (no /proc/driver/nvidia, no working nvidia-smi); install one"
    if said:
        return f"torch cannot use the GPU: {said.splitlines()[0].removeprefix('CUDA initialization: ')}"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES is {visible!r}, which hides the GPU ({gpus or 'none listed'}); set it to 0"
    return f"torch sees no GPU; the driver {driver or ''} lists {gpus or 'none'}; a container needs access to it"


def computes_bf16(device: str) -> bool:
    """Whether the device has instructions for bf16: of a processor AVX512-BF16, AMX or Arm's BF16."""
    if device == "cuda":
        import torch

        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = f"{_cpuinfo('flags')} {_cpuinfo('Features')}".split()
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))


def describe_machine() -> dict[str, Any]:
    """The facts about this machine that a reader of a result needs."""
    import psutil

    quota, flags = cgroup_cpu_quota(), _cpuinfo("flags").split()
    return {
        "cpu": cpu_model(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "usable_cores": machine_cores(),
        "cgroup_quota": round(quota, 2) if quota else None,
        "instruction_sets": [flag for flag in _NOTABLE_FLAGS if flag in flags],
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        **describe_gpus(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {
            "rlcb": code_version(),
            **{name: package_version(name) for name in ("torch", "gymnasium", "numpy")},
        },
    }


@cache  # asking the driver takes up to a second
def describe_gpus(root: Path = Path("/proc/driver/nvidia")) -> dict[str, Any]:
    """NVIDIA's GPUs of this machine and their driver, without loading CUDA; an empty list where there are none."""
    gpus = [_field(read_system_file(file), "Model") for file in sorted(root.glob("gpus/*/information"))]
    version = re.search(r"\s(\d{3,}\.[\d.]+)\s", read_system_file(root / "version"))
    if gpus or not shutil.which("nvidia-smi"):
        return {"gpus": gpus, "gpu_driver": version[1] if version else None}
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {"gpus": [], "gpu_driver": None}  # the program is there, a driver that answers is not
    rows = [line.rsplit(",", 1) for line in done.stdout.splitlines() if "," in line]
    return {"gpus": [name.strip() for name, _ in rows], "gpu_driver": rows[0][1].strip() if rows else None}


@dataclass(frozen=True)
class Memory:
    """Memory of one or several processes in bytes."""

    rss: int = 0  # resident: a page that several processes share counts in each of them
    pss: int | None = 0  # proportional: such a page is divided among them; None where the system does not tell

    def __add__(self, other: "Memory") -> "Memory":
        pss = None if self.pss is None or other.pss is None else self.pss + other.pss
        return Memory(self.rss + other.rss, pss)


def memory_of(process: "Process") -> Memory:
    """What a process takes now. PSS takes milliseconds: the kernel looks at every page."""
    try:
        pss = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process.pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:  # another system or an old kernel, not permitted, or the process has just ended
        pss = None
    rss = process.memory_info().rss
    # A process that has ended, but that its parent has not waited for yet, has no memory.
    return Memory(rss, int(pss[1]) * 1024 if pss else None if rss else 0)


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(field: str) -> str:
    """What Linux says about the first processor."""
    return _field(read_system_file(Path("/proc/cpuinfo")), field)


def _field(text: str, name: str) -> str:
    """What follows the colon in the first line that begins with a name, empty where there is none."""
    lines = (line for line in text.splitlines() if line.startswith(name))
    return next(lines, ":").split(":", 1)[1].strip()


def package_version(name: str) -> str | None:
    """The installed version of a package, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@cache  # the code that runs is the code as it was loaded, whatever happens to its files later
def code_version(root: Path = _ROOT) -> str:
    """This package's version; from a checkout with its commit, as in 0.1.0+g0123456789ab, .dirty if it was changed."""
    if not (root / ".git").exists():  # an installed package may well lie inside a repository that is not its own
        return __version__
    command = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--dirty=.dirty", "--abbrev=12"]
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, timeout=5, check=True, env=elsewhere
        )
    except (OSError, subprocess.SubprocessError):
        return __version__  # no git, no commit yet, or somebody else's checkout
    return f"{__version__}+g{done.stdout.strip()}"
