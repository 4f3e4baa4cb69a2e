"""What is in the file that Weights & Biases writes in offline mode: a log of records in LevelDB's format."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK = 32768  # bytes; records are cut into chunks, none of which crosses the end of a block
_HEADER = 7  # bytes of the file's header, and of each chunk's: checksum (4), length (2), type (1)
_LAST = (1, 4)  # types of the chunks that end a record: whole, end


@dataclass
class Uploaded:
    """What would reach the server, of one offline file."""

    id: str = ""
    name: str = ""
    group: str = ""
    project: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)  # by step
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def _payloads(content: bytes) -> Iterator[bytes]:
    assert content[:4] == b":W&B"
    at, record = _HEADER, b""
    while at + _HEADER <= len(content):
        if at % _BLOCK > _BLOCK - _HEADER:  # too little for another chunk
            at += _BLOCK - at % _BLOCK
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        at += _HEADER
        record += content[at : at + length]
        at += length
        if kind in _LAST:
            yield record
            record = b""


def uploaded(folder: Path) -> list[Uploaded]:
    """What each offline file below a folder has, in the order in which they were written."""
    return [_read(path.read_bytes()) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]


def _read(content: bytes) -> Uploaded:
    from wandb.proto.wandb_internal_pb2 import Record

    found = Uploaded()
    for payload in _payloads(content):
        record = Record()
        record.ParseFromString(payload)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found.id, found.name, found.group, found.project = run.run_id, run.display_name, run.run_group, run.project
            _put(found.config, run.config.update)
        elif kind == "config":
            _put(found.config, record.config.update)
        elif kind == "history":
            _put(found.rows.setdefault(record.history.step.num, {}), record.history.item)
        elif kind == "summary":
            _put(found.summary, record.summary.update)
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found


def _put(values: dict[str, Any], items: Any) -> None:
    """Set what is named by a key, or by the keys of nested values."""
    for item in items:
        *outer, last = list(item.nested_key) or [item.key]
        inner = values
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = json.loads(item.value_json)
