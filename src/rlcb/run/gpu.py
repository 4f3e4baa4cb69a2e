"""The GPU of a run: its name, its memory, and how busy it is according to NVIDIA's management library (NVML)."""

import ctypes
import threading

_LIBRARY = "libnvidia-ml.so.1"  # part of NVIDIA's driver
_EVERY = 0.25  # seconds between two readings; one takes less than a millisecond
_PATIENCE = 2.0  # seconds to wait for a reading in progress, which a driver that hangs never ends


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t: percent of a recent interval in which a kernel ran, and in which memory was accessed."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _ManagedGpu:
    """One GPU as the management library knows it; OSError where that is missing or does not know the GPU."""

    def __init__(self, uuid: str):
        self._library, self._handle = ctypes.CDLL(_LIBRARY), ctypes.c_void_p()
        if not self._answers("nvmlInit_v2"):
            raise OSError("the management library cannot be used")
        if not self._answers("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._handle)):
            raise OSError(f"the management library does not know {uuid}")

    def percent(self) -> int | None:
        """Percent of the last sixth of a second to a second in which a kernel ran; None where it is not told."""
        found = _Utilization()
        known = self._answers("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(found))
        return int(found.gpu) if known else None

    def used(self) -> int | None:
        """Bytes of its memory in use, of all programs together; None where it is not told."""
        found = _Memory()
        known = self._answers("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(found))
        return int(found.used) if known else None

    def close(self) -> None:
        """Release the library."""
        self._answers("nvmlShutdown")

    def _answers(self, function: str, *arguments: object) -> bool:
        """Call a function of the library; whether it is there and reports success."""
        call = getattr(self._library, function, None)
        return call is not None and call(*arguments) == 0


class GpuMeter:
    """How busy the GPU of this process is and how much of its memory is in use; nothing for a run on CPU cores.

    A thread reads it at equal intervals. Readings at the ends of updates alone would be of the time in which the GPU
    learns, never of the time in which it waits for environments.
    """

    def __init__(self, device: str):
        self._device = device
        self._gpu: _ManagedGpu | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="gpu", daemon=True)
        self._percents = self._recent = (0, 0)  # sum and number of readings: of all, and since the last sample
        self._latest: float | None = None
        self._used: int | None = None
        self._peak: int | None = None

    def start(self) -> None:
        """Begin to read, where there is a GPU and a library that knows it."""
        self._gpu = _managed_gpu(self._device)
        if self._gpu:
            self._thread.start()

    def sample(self) -> dict[str, float | None]:
        """Mean percent of the time since the last sample in which the GPU was busy; GB of its memory in use now."""
        if self._device != "cuda":
            return {}
        if not self._percents[1]:
            self._read()  # the first update was shorter than the interval
        with self._lock:
            total, number = self._recent
            self._recent = (0, 0)
            if number:
                self._latest = round(total / number, 2)
            used = None if self._used is None else round(self._used / 2**30, 4)
            return {"resource/gpu_percent": self._latest, "resource/gpu_memory_gb": used}

    def totals(self) -> dict[str, float | None]:
        """Mean percent of the time in which the GPU was busy, and the most GB of its memory in use."""
        if self._device != "cuda":
            return {}
        with self._lock:
            total, number = self._percents
            return {
                "gpu_percent": round(total / number, 1) if number else None,
                "peak_gpu_in_use_gb": None if self._peak is None else round(self._peak / 2**30, 3),
            }

    def close(self) -> None:
        """End the readings."""
        self._ended.set()
        if self._gpu is None:
            return
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._gpu.close()

    def _read_on(self) -> None:
        while not self._ended.wait(_EVERY):
            self._read()

    def _read(self) -> None:
        if self._gpu is None:
            return
        percent, used = self._gpu.percent(), self._gpu.used()
        with self._lock:
            if percent is not None:
                self._percents = self._percents[0] + percent, self._percents[1] + 1
                self._recent = self._recent[0] + percent, self._recent[1] + 1
            self._used = used
            self._peak = max(self._peak or 0, used) if used is not None else self._peak


def _managed_gpu(device: str) -> _ManagedGpu | None:
    """The GPU that this process works on as the management library knows it, None where it does not."""
    if device != "cuda":
        return None
    import torch

    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    try:
        return _ManagedGpu(f"GPU-{uuid}")
    except OSError:  # another vendor's GPU, part of one, or a driver without the library: the run continues without it
        return None


def gpu_memory(device: str) -> dict[str, float]:
    """The most memory that PyTorch took on the GPU in this process, in GB; empty for a run on CPU cores.

    `peak_gpu_memory_gb`: held by its allocator, `peak_gpu_tensors_gb`: of that, in use by tensors; both without the
    CUDA context, which the driver keeps beside it.
    """
    if device != "cuda":
        return {}
    import torch

    held, used = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    return {"peak_gpu_memory_gb": round(held / 2**30, 3), "peak_gpu_tensors_gb": round(used / 2**30, 3)}


def gpu_used(device: str) -> dict[str, str | float]:
    """The GPU that this process works on and its memory in GB; empty for a run on CPU cores."""
    if device != "cuda":
        return {}
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"gpu": found.name, "gpu_memory_gb": round(found.total_memory / 2**30, 1)}
