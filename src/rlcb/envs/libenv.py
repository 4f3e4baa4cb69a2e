"""Procgen's engine through ctypes: the C interface `libenv`, version 1, as far as Procgen uses it.

The engine is a shared library with these functions; `env` is a pointer that only the engine looks behind, and stands
for `num` copies of one game:

    int   libenv_version()
    env  *libenv_make(int num, struct options)          the options by value; a bad one ends the process
    int   libenv_get_tensortypes(env *, int space, struct tensor_type *)    how many; describes them if not NULL
    void  libenv_set_buffers(env *, struct buffers *)   where it writes from now on, and reads the actions
    void  libenv_act(env *)                             begin a step with the actions in their buffers
    void  libenv_observe(env *)                         wait for the step: the buffers hold what it gave
    void  libenv_close(env *)                           end its threads and free it
    int   get_state(env *, int copy, char *, int room)  the length of the state that was written
    void  set_state(env *, int copy, const char *, int length)

A space (observation, action, info) is a list of named tensors, each with one buffer per copy. The pointers to a space's
buffers are in one array: tensor by tensor, and of each the copies in their order. Here the buffers of a tensor are the
rows of one array, so what the engine writes is read in place.

After `observe`, `rewards` belong to the action before, and where `firsts` is set, the frame is the first one of a new
episode. With threads of its own the engine begins to overwrite the buffers as soon as `act` is called.
"""

import ctypes
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_VERSION = 1
_OBSERVATION, _ACTION, _INFO = 1, 2, 3  # spaces
_UINT8, _INT32 = 1, 2  # types of numbers
_TYPES: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.int32), 3: np.dtype(np.float32)}
_NAME_BYTES, _MOST_DIMENSIONS = 128, 16
_STATE_BYTES = 2**20  # more than any game's state takes
_PAGE = 4096  # bytes; what is registered with a GPU shares no page with anything else
Array = NDArray[Any]
Options = dict[str, str | int]  # a truth value counts as a number of one byte


class _Value(ctypes.Union):
    _fields_ = (("uint8", ctypes.c_uint8), ("int32", ctypes.c_int32), ("float32", ctypes.c_float))


class _TensorType(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * _NAME_BYTES),
        ("scalar_type", ctypes.c_int),  # real or discrete, which the type of its numbers tells as well
        ("dtype", ctypes.c_int),
        ("shape", ctypes.c_int * _MOST_DIMENSIONS),
        ("ndim", ctypes.c_int),
        ("low", _Value),
        ("high", _Value),
    )


class _Option(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * _NAME_BYTES),
        ("dtype", ctypes.c_int),
        ("count", ctypes.c_int),
        ("data", ctypes.c_void_p),
    )


class _Options(ctypes.Structure):
    _fields_ = (("items", ctypes.POINTER(_Option)), ("count", ctypes.c_int))


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("observations", ctypes.POINTER(ctypes.c_void_p)),
        ("rewards", ctypes.c_void_p),
        ("firsts", ctypes.c_void_p),
        ("infos", ctypes.POINTER(ctypes.c_void_p)),
        ("actions", ctypes.POINTER(ctypes.c_void_p)),
    )


@cache  # a library stays loaded, with the pictures that all games in a process share
def load(path: Path) -> ctypes.CDLL:
    """The engine in a file; OSError, with the reason, for one that cannot be used."""
    # Its Qt must not meet another version's symbols that somebody else has loaded into this process.
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    functions: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "libenv_version": (number, ()),
        "libenv_make": (pointer, (number, _Options)),
        "libenv_get_tensortypes": (number, (pointer, number, ctypes.POINTER(_TensorType))),
        "libenv_set_buffers": (None, (pointer, ctypes.POINTER(_Buffers))),
        "libenv_act": (None, (pointer,)),
        "libenv_observe": (None, (pointer,)),
        "libenv_close": (None, (pointer,)),
        "get_state": (number, (pointer, number, ctypes.c_char_p, number)),
        "set_state": (None, (pointer, number, ctypes.c_char_p, number)),
    }
    try:
        for name, (result, arguments) in functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        raise OSError(f"{path}: not Procgen's engine: it has no function {name}") from None
    if (version := library.libenv_version()) != _VERSION:
        raise OSError(f"{path}: its interface has version {version}, this program knows version {_VERSION}")
    return library


class Games:
    """`num` copies of a game in an engine. Their arrays are the engine's buffers: every step overwrites them."""

    def __init__(self, library: ctypes.CDLL, num: int, options: Options):
        """`options` must have been checked: the engine ends the process over a bad one."""
        self._library, self.num = library, num
        given, self._option_values = _options(options)  # which may be looked at for as long as the engine lives
        self._handle: int | None = library.libenv_make(num, given)
        observations, actions, self.infos = (self._arrays(space) for space in (_OBSERVATION, _ACTION, _INFO))
        self.frames, self._actions = observations["rgb"], actions["action"]
        self.rewards: NDArray[np.float32] = _aligned((num,), np.dtype(np.float32))
        self.firsts: NDArray[np.bool_] = _aligned((num,), np.dtype(np.bool_))
        self._buffers = _Buffers(
            _addresses(observations), self.rewards.ctypes.data, self.firsts.ctypes.data,
            _addresses(self.infos), _addresses(actions),
        )  # fmt: skip
        library.libenv_set_buffers(self._handle, ctypes.byref(self._buffers))

    def act(self, actions: NDArray[np.int64]) -> None:
        """Begin a step with one action [B] for each copy."""
        self._actions[:] = actions
        self._library.libenv_act(self._handle)

    def observe(self) -> None:
        """Wait for the step; the arrays then hold what it gave."""
        self._library.libenv_observe(self._handle)

    def get_state(self) -> list[bytes]:
        """Each copy's state, random generators included."""
        room = ctypes.create_string_buffer(_STATE_BYTES)
        lengths = (self._library.get_state(self._handle, copy, room, _STATE_BYTES) for copy in range(self.num))
        return [ctypes.string_at(room, length) for length in lengths]

    def set_state(self, states: list[bytes]) -> None:
        """Continue with these states, one for each copy; the engine trusts them."""
        for copy, state in enumerate(states):
            self._library.set_state(self._handle, copy, state, len(state))

    def close(self) -> None:
        """End the engine's threads and free what it holds; the arrays stay as they are."""
        if self._handle is not None:
            self._library.libenv_close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if hasattr(self, "_handle"):  # the engine may not have got that far
            self.close()

    def _arrays(self, space: int) -> dict[str, Array]:
        """The tensors of a space, one array [B, …] each."""
        count = self._library.libenv_get_tensortypes(self._handle, space, None)
        types = (_TensorType * count)()
        self._library.libenv_get_tensortypes(self._handle, space, types)
        shapes: dict[str, tuple[tuple[int, ...], int]] = {
            found.name.decode(): ((self.num, *found.shape[: found.ndim]), found.dtype) for found in types
        }
        return {name: _aligned(shape, _TYPES[number]) for name, (shape, number) in shapes.items()}


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros that begin at a page and share their last one with nothing else."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(-(-size // _PAGE) * _PAGE + _PAGE, np.uint8)
    first = -memory.ctypes.data % _PAGE
    return memory[first : first + size].view(dtype).reshape(shape)


def _addresses(arrays: dict[str, Array]) -> "ctypes.Array[ctypes.c_void_p]":
    """Where each copy's part of each array begins."""
    found = [array.ctypes.data + row * array.strides[0] for array in arrays.values() for row in range(len(array))]
    return (ctypes.c_void_p * len(found))(*found)


def _options(options: Options) -> tuple[_Options, list[Any]]:
    """The options as the engine takes them, and what they point to."""
    items, values = (_Option * len(options))(), []
    for item, (name, value) in zip(items, options.items(), strict=True):
        data: Any
        if isinstance(value, str):
            data, item.dtype, item.count = ctypes.create_string_buffer(value.encode()), _UINT8, len(value.encode())
        elif isinstance(value, bool):
            data, item.dtype, item.count = ctypes.c_uint8(value), _UINT8, 1
        else:
            data, item.dtype, item.count = ctypes.c_int32(value), _INT32, 1
        item.name, item.data = name.encode(), ctypes.addressof(data)
        values.append(data)
    return _Options(items, len(options)), values
