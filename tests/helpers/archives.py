"""Checkpoint files with correct checksums around content that is not right."""

import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlcb.run.archive import sealed

Change = Callable[[str, bytes], tuple[str, bytes, int]]  # a record to its name, bytes and how often they are repeated


def signed(data: bytes) -> bytes:
    """A ZIP archive with a correct checksum."""
    archive = bytearray(data)
    archive[-2:] = (76).to_bytes(2, "little")
    archive += b"rlcb-sha256:"
    return bytes(archive + hashlib.sha256(archive).hexdigest().encode())


def write_sealed(path: Path, content: Any) -> None:
    """A checkpoint with a correct checksum, whatever is in it."""
    path.write_bytes(sealed(content))


def changed_archive(content: Any, change: Change) -> bytes:
    """A checkpoint with a correct checksum whose records were changed; those that are repeated are compressed."""
    source = zipfile.ZipFile(io.BytesIO(sealed(content)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compresslevel=1) as target:
        for entry in source.infolist():
            name, data, times = change(entry.filename, source.read(entry))
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_STORED if times == 1 else zipfile.ZIP_DEFLATED
            with target.open(info, "w", force_zip64=times > 1) as record:
                for _ in range(times):
                    record.write(data)
    return signed(buffer.getvalue())
