"""`rlcb import`: runs of other programs as directories that a comparison reads."""

import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlcb.analysis.external.convert import HISTORY, Content, convert, run_of
from rlcb.analysis.external.find import EXPECTED, Source, is_imported, source_at
from rlcb.analysis.external.labels import Labels
from rlcb.analysis.external.mapping import read_mapping
from rlcb.analysis.external.record import MARK
from rlcb.analysis.history import Columns
from rlcb.analysis.load import find_runs, is_run
from rlcb.analysis.run import Run
from rlcb.analysis.text import number_text
from rlcb.analysis.untrusted import plain, read_object
from rlcb.console import warn
from rlcb.errors import UsageError
from rlcb.files import write_json, write_whole
from rlcb.report.compare import make_folder
from rlcb.run.directory import refuse_inside_run
from rlcb.words import counted, span_text, typed


def import_logs(
    paths: Sequence[Path], wanted: str | None, mapping: Path | None, output: Path, seed: int | None, **labels: Any
) -> int:
    """Read every log that is named or lies below a folder, and write each as a run."""
    tags = read_mapping(mapping) if mapping else None
    sources = list(_sources(paths, wanted))
    if seed is not None and len(sources) > 1:
        raise UsageError(f"--seed: {len(sources)} runs are given; import them one at a time, or omit the flag")
    refuse_inside_run(output / "run")
    written, faults = [], []
    for source in sources:
        try:
            content, columns = convert(source, Labels(seed=seed, **labels), tags)
            run = run_of(source.path, content, columns)
        except UsageError as error:
            faults.append(str(error))
            continue
        folder = _write(output, content, columns)
        written.append(folder)
        print("\n".join(_told(folder, run, content)), flush=True)
    if not written:
        raise UsageError(faults[0] if faults else f"nothing to import: no {EXPECTED} there")
    for fault in faults:
        warn(f"left out: {plain(fault)}")
    place = shlex.quote(str(written[0] if len(written) == 1 else output))
    print(f"Compare: {typed('rlcb compare')} RUN … {place}", flush=True)
    return 0


def _sources(paths: Sequence[Path], wanted: str | None) -> Iterable[Source]:
    """The logs at and below the paths, each once."""
    seen: set[str] = set()
    for named in paths:
        if os.path.isfile(named):
            found = [named]
        elif os.path.isdir(named):
            found = find_runs(named, lambda _: None)
        else:
            raise UsageError(f"{named}: no such file or directory; expected {EXPECTED}")
        sources = [source for path in found if not is_run(path) and (source := source_at(path, wanted))]
        if not sources:
            own = any(is_run(path) for path in found)
            done = any(is_imported(path) for path in found)
            why = "is a run of rlcb" if own else "is already imported" if done else ""
            why = f"{why}: pass it to rlcb compare" if why else f"nothing to import: expected {EXPECTED}"
            raise UsageError(f"{named}: {why}")
        for source in sources:
            real = os.path.realpath(source.path)
            if real not in seen:
                seen.add(real)
                yield source


def _write(output: Path, content: Content, columns: Columns) -> Path:
    """Write a run into its place: an earlier import of the same files is replaced, any other is kept."""
    seed = content["seed"]
    parent = output / _slug(content["game"]) / _slug(content["name"])
    wanted = "seed_unknown" if seed is None else f"seed_{seed}"
    number = 1
    while not _is_free(folder := parent / (wanted if number == 1 else f"{wanted}_{number}"), content):
        number += 1
    make_folder(folder)
    rows = np.stack(list(columns.values()), axis=1).tolist()
    known = ({name: value for name, value in zip(columns, row, strict=True) if np.isfinite(value)} for row in rows)
    write_whole(folder / HISTORY, "".join(json.dumps(row) + "\n" for row in known).encode())
    write_json(folder / MARK, content)
    return folder


def _is_free(folder: Path, content: Content) -> bool:
    """Whether a folder does not exist, or holds an earlier import of the same files."""
    if not os.path.lexists(folder):
        return True
    try:
        there = read_object(folder / MARK).get("sources")
    except UsageError:
        return False
    old = [source.get("path") for source in there if isinstance(source, dict)] if isinstance(there, list) else []
    return old == [source["path"] for source in content["sources"]]


def _slug(text: str) -> str:
    """A name as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("_.") or "unnamed"


def _told(folder: Path, run: Run, content: Content) -> Iterable[str]:
    """What was imported, what was guessed and what is not known."""
    external = run.external
    assert external
    files = counted(len(external.sources), "file")
    yield f"{run.name} → {folder}"
    amount = [f"{number_text(run.metrics.total_timesteps, ',.0f')} steps"]
    if run.metrics.num_episodes is not None:
        amount.append(counted(round(run.metrics.num_episodes), "episode"))
    if run.metrics.duration_hours is not None:
        amount.append(span_text(3600 * run.metrics.duration_hours))
    yield f"  {external.label}, {run.game}, seed {'unknown' if run.seed is None else run.seed}: {', '.join(amount)}"
    yield f"  from: {external.format} of {external.program}, {files}"
    yield f"  rewards: {external.rewards}"
    guessed = [f"{name} {content[name]} (from {how})" for name, how in external.guessed.items()]
    if guessed:
        yield f"  guessed: {', '.join(guessed)}"
    yield f"  unknown: {', '.join(external.unknown)}"
    yield from (f"  note: {problem}" for problem in run.problems)
