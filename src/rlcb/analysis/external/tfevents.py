"""TensorBoard's event files, read without TensorBoard: framed records with checksums, of which scalars are kept.

A record is a length (8 bytes), the length's checksum, the data and the data's checksum. The data is a protocol buffer
`Event`; of its fields the time, the step and the summary's values are read, everything else is skipped by its size.
"""

import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

from rlcb.errors import UsageError
from rlcb.files import open_regular
from rlcb.words import counted

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_LARGEST_RECORD = 64 * 2**10  # pictures and histograms are larger, scalars and texts of settings smaller
_MOST_TAGS = 10_000
_MOST_SCALARS = 20_000_000
_LARGEST_TEXT = 16 * 2**10
_FLOAT, _DOUBLE, _INT32, _STRING, _INT64 = 1, 2, 3, 7, 9  # TensorFlow's numbers of types
_PACKED = {5: ("<f", 4), 6: ("<d", 8)}  # float_val and double_val of a tensor
_CONTENT = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}


@dataclass(frozen=True)
class Series:
    """The values of one tag."""

    step: "array[float]" = field(default_factory=lambda: array("d"))
    time: "array[float]" = field(default_factory=lambda: array("d"))  # seconds since the epoch
    value: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass
class Events:
    """What is read of event files."""

    scalars: dict[str, Series] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    begin: float | None = None  # time of the first record
    problems: list[str] = field(default_factory=list)
    count: int = 0


def is_events(name: str) -> bool:
    """Whether a file is called as TensorBoard's writers do."""
    return ".tfevents." in name


def _table() -> tuple[int, ...]:
    """CRC-32C (Castagnoli), byte by byte."""
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_CRC = _table()


def masked_checksum(data: bytes) -> int:
    """The checksum that records carry."""
    crc = 0xFFFFFFFF
    table = _CRC
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(path: Path, events: Events) -> None:
    """Add what a file holds; UsageError if it is no event file, `problems` says what of it could not be read."""
    bad = 0
    try:
        with open_regular(path) as file:
            for data in _records(file, path, events.problems):
                bad += data is None or not _add(data, events)
                if events.count > _MOST_SCALARS or len(events.scalars) > _MOST_TAGS:
                    limit = f"{_MOST_SCALARS:,} scalars or {_MOST_TAGS:,} tags"
                    events.problems.append(f"{path.name}: only the first {limit} are read")
                    break
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if bad:
        events.problems.append(f"{path.name}: {counted(bad, 'damaged record')} ignored")


def _records(file: BufferedReader, path: Path, problems: list[str]) -> Iterator[bytes | None]:
    """The data of each record, None for a damaged one; pictures and whatever else is large are skipped."""
    size, place = os.fstat(file.fileno()).st_size, 0
    if not size:
        raise UsageError(f"{path}: is empty; expected TensorBoard events")
    while header := file.read(_HEADER.size):
        length, checksum = _HEADER.unpack(header) if len(header) == _HEADER.size else (size, None)
        if checksum is not None and masked_checksum(header[:8]) != checksum:
            if not place:
                raise UsageError(f"{path}: not TensorBoard events: its first record has a wrong checksum")
            problems.append(f"{path.name}: damaged at byte {place:,}: the rest is ignored")
            return
        place += _HEADER.size + length + _CHECKSUM.size
        if place > size:
            problems.append(f"{path.name}: its last record is incomplete and ignored (still being written?)")
            return
        if length > _LARGEST_RECORD:
            file.seek(place)
            continue
        data, tail = file.read(length), file.read(_CHECKSUM.size)
        whole = len(tail) == _CHECKSUM.size and masked_checksum(data) == _CHECKSUM.unpack(tail)[0]
        yield data if whole else None


def _add(data: bytes, events: Events) -> bool:
    """Add an event's values; False if it is not valid."""
    try:
        time, step, summaries = 0.0, 0, []
        for number, value in _fields(data):
            if number == 1 and isinstance(value, bytes):
                time = struct.unpack("<d", value)[0]
            elif number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                summaries.append(value)
        if events.begin is None and 0 < time < 1e11:
            events.begin = time
        for summary in summaries:
            for number, value in _fields(summary):
                if number == 1 and isinstance(value, bytes):
                    _add_value(value, step, time, events)
    except (ValueError, struct.error, IndexError):
        return False
    return True


def _add_value(data: bytes, step: int, time: float, events: Events) -> None:
    """Add a summary's value, if it is a scalar or a short text."""
    tag, scalar, tensor = "", None, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            scalar = float(struct.unpack("<f", value)[0])
        elif number == 8 and isinstance(value, bytes):
            tensor = value
    if scalar is None and tensor:
        scalar, text = _tensor(tensor)
        if text and len(events.texts) < _MOST_TAGS:
            events.texts[tag] = text
    if scalar is not None:
        series = events.scalars.setdefault(tag, Series())
        series.step.append(float(step))
        series.time.append(time)
        series.value.append(scalar)
        events.count += 1


def _tensor(data: bytes) -> tuple[float | None, str]:
    """The number in a tensor of one number, or the text in one of one text."""
    kind, found, text = 0, None, ""
    content = b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number in _PACKED and isinstance(value, bytes):
            form, size = _PACKED[number]
            found = float(struct.unpack(form, value)[0]) if len(value) == size else None
        elif number in (7, 10) and not isinstance(value, bytes):
            found = float(value)
        elif number == 8 and isinstance(value, bytes) and kind == _STRING:
            text = value[:_LARGEST_TEXT].decode(errors="replace")
    if found is None and kind in _CONTENT and len(content) == struct.calcsize(_CONTENT[kind]):
        found = float(struct.unpack(_CONTENT[kind], content)[0])
    return found, text


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: their numbers with whole numbers, or with the bytes of everything else."""
    place, size = 0, len(data)
    while place < size:
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            whole, place = _varint(data, place)
            yield number, whole - 2**64 if whole >= 2**63 else whole
            continue
        if kind == 2:
            length, place = _varint(data, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("a kind of field that is not in use")
        if place + length > size:
            raise ValueError("a field ends behind its message")
        yield number, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A whole number of up to ten bytes, and where it ends."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, place
        shift += 7
        if shift > 63:
            raise ValueError("a number that is too long")
