"""The file of a checkpoint: an archive that `torch.load(..., weights_only=True)` opens, sealed by its SHA-256.

`torch.save` writes a ZIP archive: a pickle that describes all values, and a record with the bytes of each tensor. The
SHA-256 of all that stands before it is added as the archive's comment. Reading takes the description first, without
the tensors' bytes: what the content is to be can be checked before the memory for it is taken. Nothing is executed.
"""

import hashlib
import io
import math
import os
import pickle
import pickletools
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch

_LABEL = b"rlcb-sha256:"
_COMMENT = len(_LABEL) + 64
_END = struct.Struct("<4s4xHHLL2x")  # ZIP's last record: entries, entries, bytes, offset of its directory
_END_64 = struct.Struct("<4s20xQQQ8x")  # the same in an archive of any size, in front of a locator
_LOCATOR = 20  # bytes
_MOST_RECORDS = (
    20_000  # a state of each of 16,384 environments, two random generators of each of 1,024 workers, weights
)
_DIRECTORY_ENTRY = 512  # most bytes of the ZIP's directory for a record
_DESCRIPTION = 2**20  # most bytes of the pickle …
_DESCRIPTION_ENTRY = 256  # … and for each record
_OPCODES = (
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "BINUNICODE", "NONE", "NEWTRUE", "NEWFALSE", "GLOBAL", "REDUCE", "BINPERSID", "BINPUT", "LONG_BINPUT",
    "BINGET", "LONG_BINGET",
)  # fmt: skip
_STORAGES = {"FloatStorage": torch.float32, "ByteStorage": torch.uint8}


class ArchiveDamaged(Exception):
    """The file is not an undamaged archive of this program; says why."""


@dataclass(frozen=True)
class TensorHeader:
    """A tensor in an archive whose bytes have not been read."""

    record: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


def sealed(content: Any) -> bytes:
    """An archive with this content."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    data = bytearray(buffer.getvalue())
    if data[-22:-18] != b"PK\x05\x06":
        raise ArchiveDamaged("torch.save did not write a plain ZIP archive")
    data[-2:] = _COMMENT.to_bytes(2, "little")
    data += _LABEL
    data += hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


class Archive:
    """An archive whose seal is whole: `content` has a TensorHeader in the place of every tensor."""

    def __init__(self, file: BinaryIO):
        """Verify the seal and read the description; anything unusual raises ArchiveDamaged."""
        _check_seal(file)
        try:
            _check_directory(file)
            self._zip = zipfile.ZipFile(file)
            self._records = _records(self._zip, os.fstat(file.fileno()).st_size)
            self.content = self._description()
        except ArchiveDamaged:
            raise
        except Exception as error:  # what a hostile file makes the parsers raise may be anything
            raise ArchiveDamaged(f"refused: {type(error).__name__}: {_first_line(error)}") from None

    def _description(self) -> Any:
        info = self._records["data.pkl"]
        if info.file_size > _DESCRIPTION + _DESCRIPTION_ENTRY * len(self._records):
            raise ArchiveDamaged(f"refused: {info.file_size:,} bytes describe {len(self._records)} records")
        data = self._zip.read(info)
        _refuse_opcodes(data)
        reader = _HeaderReader(io.BytesIO(data))
        content = reader.load()
        for header in reader.headers:
            if self._records[header.record].file_size != header.size * header.dtype.itemsize:
                raise ArchiveDamaged(f"refused: {header.record} does not have the size of its tensor")
        return content

    def filled(self, value: Any) -> Any:
        """A part of the content with all its tensors, each of which can be read once: so none is there many times."""
        if isinstance(value, TensorHeader):
            record = self._records.pop(value.record, None)
            if record is None:
                raise ArchiveDamaged("refused: two tensors share their bytes")
            try:
                data = bytearray(self._zip.read(record))
            except Exception as error:  # the record's own head may say something else than the directory
                raise ArchiveDamaged(f"refused: {type(error).__name__}: {_first_line(error)}") from None
            return torch.frombuffer(data, dtype=value.dtype).view(value.shape)
        if isinstance(value, dict):
            return {key: self.filled(inner) for key, inner in value.items()}
        return [self.filled(inner) for inner in value] if isinstance(value, list) else value


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")[:200]


def _check_seal(file: BinaryIO) -> None:
    """Compare the SHA-256 with the content's, a piece at a time."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _COMMENT, 0))
    label, digest = file.read(len(_LABEL)), file.read(64)
    if label != _LABEL:
        raise ArchiveDamaged("not a checkpoint of this program, or cut off")
    file.seek(0)
    left, found = size - 64, hashlib.sha256()
    while left > 0 and (piece := file.read(min(left, 2**20))):
        found.update(piece)
        left -= len(piece)
    if found.hexdigest().encode() != digest:
        raise ArchiveDamaged("damaged: its SHA-256 does not match")


def _check_directory(file: BinaryIO) -> None:
    """Bound the ZIP's directory by its last records, before it is read as a whole."""
    file.seek(-_COMMENT - _END.size - _LOCATOR - _END_64.size, os.SEEK_END)
    mark_64, _, entries_64, bytes_64 = _END_64.unpack(file.read(_END_64.size))
    locator = file.read(_LOCATOR)
    mark, _, entries, size, _ = _END.unpack(file.read(_END.size))
    plain = mark == b"PK\x05\x06" and 0 < entries <= _MOST_RECORDS and size <= entries * _DIRECTORY_ENTRY
    same = mark_64 == b"PK\x06\x06" and (entries_64, bytes_64) == (entries, size)
    if not plain or (locator.startswith(b"PK\x06\x07") and not same):
        raise ArchiveDamaged("refused: its ZIP directory is not one that this program writes")


def _records(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The archive's records by their names below its one folder; together they are not larger than the file."""
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size for entry in entries):
        raise ArchiveDamaged("refused: it is compressed, and this program writes archives that are not")
    if sum(entry.file_size for entry in entries) > size:
        raise ArchiveDamaged("refused: its records are larger than the file")
    records = {entry.filename.partition("/")[2]: entry for entry in entries}
    if len(records) < len(entries) or len({entry.filename.partition("/")[0] for entry in entries}) > 1:
        raise ArchiveDamaged("refused: two of its records have the same name")
    order = records.get("byteorder")
    if order is not None and (order.file_size > 8 or archive.read(order) != b"little"):
        raise ArchiveDamaged("refused: its numbers have another byte order")
    return records


def _refuse_opcodes(description: bytes) -> None:
    """Only what plain values and tensors need may stand in the pickle: the rest can call functions or take memory."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(description)):
        far = isinstance(argument, int) and opcode.name == "LONG_BINPUT" and argument > number
        if far or opcode.name not in _OPCODES:
            raise ArchiveDamaged(f"refused: it holds the pickle instruction {opcode.name}")


@dataclass(frozen=True)
class _Storage:
    """The bytes of a tensor, as the description refers to them."""

    record: str
    dtype: torch.dtype
    size: int


class _HeaderReader(pickle.Unpickler):
    """Unpickles plain values and headers of tensors, nothing else."""

    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.headers: list[TensorHeader] = []

    def find_class(self, module: str, name: str) -> Any:
        """The few names that a tensor is described with, each replaced by something harmless."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self._tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict  # of a tensor's hooks, always empty
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise ArchiveDamaged(f"refused: it refers to {module}.{name}"[:200])

    def persistent_load(self, pid: Any) -> _Storage:
        """What stands for the bytes of a tensor."""
        kind, dtype, record, _, size = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or not isinstance(record, str):
            raise ArchiveDamaged("refused: it refers to something that is not a tensor")
        return _Storage(f"data/{record}", dtype, size)

    def _tensor(self, storage: _Storage, offset: int, shape: Any, stride: Any, *rest: Any) -> TensorHeader:
        del rest  # gradients and hooks, which a saved tensor does not have
        whole = type(shape) is tuple and all(type(one) is int and one > 0 for one in (*shape, storage.size))
        dense = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape))) if whole else None
        if offset != 0 or stride != dense or math.prod(shape) != storage.size:
            raise ArchiveDamaged("refused: a tensor does not lie in its bytes as it should")
        header = TensorHeader(storage.record, storage.dtype, shape)
        self.headers.append(header)
        return header
