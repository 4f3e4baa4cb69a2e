"""A stand-in for NVIDIA's management library: functions with its signatures, called through ctypes like those."""

import ctypes
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

UUID = "7f3a2b10-0000-1111-2222-333344445555"
_HANDLE = 4711
_NOT_SUPPORTED, _NOT_FOUND = 3, 6  # of its error codes


class ManagementLibrary:
    """Tells `percents` one after the other, then the last one again; a function in `refused` reports an error."""

    def __init__(self, percents: tuple[int, ...] = (50,), used: int = 3 * 2**30, refused: tuple[str, ...] = ()):
        self.percents, self.memory_used, self.refused = list(percents), used, refused
        self.told = threading.Event()  # all of `percents` have been told
        self.calls: list[str] = []
        asked = [ctypes.c_void_p, ctypes.c_void_p]  # the GPU, and where the answer goes
        self._add("nvmlInit_v2", [], lambda: 0)
        self._add("nvmlShutdown", [], lambda: 0)
        self._add("nvmlDeviceGetHandleByUUID", [ctypes.c_char_p, ctypes.c_void_p], self._handle)
        self._add("nvmlDeviceGetUtilizationRates", asked, self._rates)
        self._add("nvmlDeviceGetMemoryInfo", asked, self._memory)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have this library loaded in the place of NVIDIA's, and torch name a GPU that it knows."""
        others = ctypes.CDLL
        monkeypatch.setattr(ctypes, "CDLL", lambda name: self if name == "libnvidia-ml.so.1" else others(name))
        found = SimpleNamespace(uuid=UUID, name="NVIDIA H200", total_memory=140 * 2**30)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: found)

    def _add(self, name: str, types: list[Any], answer: Callable[..., int]) -> None:
        def called(*arguments: Any) -> int:
            self.calls.append(name)
            return _NOT_SUPPORTED if name in self.refused else answer(*arguments)

        setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(called))

    def _handle(self, uuid: bytes, answer: int) -> int:
        ctypes.cast(answer, ctypes.POINTER(ctypes.c_void_p))[0] = _HANDLE
        return 0 if uuid == f"GPU-{UUID}".encode() else _NOT_FOUND

    def _rates(self, handle: int, answer: int) -> int:
        words = ctypes.cast(answer, ctypes.POINTER(ctypes.c_uint))
        words[0], words[1] = self.percents[0], 99  # the second is about memory accesses
        if len(self.percents) > 1:
            self.percents.pop(0)
        else:
            self.told.set()
        return 0 if handle == _HANDLE else _NOT_FOUND

    def _memory(self, handle: int, answer: int) -> int:
        words = ctypes.cast(answer, ctypes.POINTER(ctypes.c_ulonglong))
        words[0], words[1], words[2] = 140 * 2**30, 140 * 2**30 - self.memory_used, self.memory_used
        return 0 if handle == _HANDLE else _NOT_FOUND
