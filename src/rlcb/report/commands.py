"""What the comparing commands do: read, compare, print, write."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rlcb.analysis.comparison import compare
from rlcb.analysis.load import Warn, find_runs, is_run, load_run, load_runs
from rlcb.analysis.plots import IMAGE_FORMATS, as_image, figure_four_panels
from rlcb.analysis.run import Run
from rlcb.analysis.text import comparison_text
from rlcb.analysis.two_runs import remarks, two_run_report, two_run_table
from rlcb.analysis.untrusted import plain
from rlcb.console import note, warn
from rlcb.errors import UsageError
from rlcb.files import write_whole
from rlcb.report.sections import Origin
from rlcb.report.write import make_folder, write_comparison

_MODES = ("sequential", "parallel")


def compare_any(paths: Sequence[Path], output: Path, threshold: float | None, seed: int) -> int:
    """`rlcb compare`: any number of runs."""
    unread: list[str] = []

    def tell(text: str) -> None:
        warn(text)
        unread.extend([plain(text)] * text.startswith("left out"))

    runs = load_runs(paths, tell)
    make_folder(output)
    comparison = compare(runs, seed=seed, threshold=threshold)
    options = ["--output", str(output), "--seed", str(seed)]
    options += [] if threshold is None else ["--reward-threshold", f"{threshold:g}"]
    command = shlex.join(["rlcb", "compare", *map(str, paths), *options])
    *files, page = write_comparison(comparison, output, Origin(runs, unread, command, datetime.now().astimezone()))
    written = (f"Written: {file}" for file in files if not file.match("report_*.png"))
    print(comparison_text(comparison), *written, f"Report: {page}", sep="\n", flush=True)
    return 0


def compare_two(sequential: str | None, parallel: str | None, newest: Path | None, output: Path) -> int:
    """`compare_results.py`: a sequential and a parallel run side by side, or one of them alone."""
    if output.suffix.lower() not in IMAGE_FORMATS:
        raise UsageError(f"--output {output}: the name of a picture must end in {', '.join(IMAGE_FORMATS)}")
    given = dict(zip(_MODES, (sequential, parallel), strict=True))
    chosen = {mode: _named(mode, name) if name else None for mode, name in given.items()}
    if newest and not all(given.values()):
        chosen |= {mode: run for mode, run in newest_runs(newest, warn).items() if given[mode] is None}
    one, two = (chosen[mode] for mode in _MODES)
    runs = [run for run in (one, two) if run]
    if not runs:
        raise UsageError("say which runs: --sequential DIR, --parallel DIR, or both")
    for run in runs:
        if run.problems:
            warn(f"{run.name}: used, but {'; '.join(run.problems)}")
    make_folder(output.parent)
    said = remarks(runs)
    names = tuple(given[mode] or (run.name if run else None) for mode, run in zip(_MODES, (one, two), strict=True))
    sets = compare(runs).sets
    title = sets[0].title if len(sets) == 1 else "; ".join(said)
    picture = figure_four_panels([group for found in sets for group in found.groups], title)
    report = output.with_name("comparison_report.txt")
    write_whole(output, as_image(picture, output.suffix.lower()))
    write_whole(report, two_run_report((names[0], names[1]), one, two).encode())
    files = (f"Written: {output}", f"Written: {report}")
    print(two_run_table(one, two), *said, *files, sep="\n", flush=True)
    return 0


def _named(mode: str, name: str) -> Run:
    """The run that a flag names, which must be of the flag's mode."""
    path = Path(name)
    if not path.is_dir() or not is_run(path):
        below = len(find_runs(path, lambda _: None))
        what = f"holds {below} runs, name one of them or use rlcb compare" if below else "holds no run"
        raise UsageError(f"--{mode} {name}: {what if path.is_dir() else 'no such directory'}")
    run = load_run(path)
    if run.mode != mode:
        raise UsageError(f"--{mode} {name}: is a {run.mode} run; use --{run.mode}, or rlcb compare for any two runs")
    return run


def newest_runs(folder: Path, warn: Warn) -> dict[str, Run | None]:
    """The newest run below a folder and the newest of its algorithm in the other mode; finished ones come first."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such directory: there are no runs to compare yet; make train-timed makes one")
    runs = load_runs([folder], warn)
    runs.sort(key=lambda run: (run.status == "finished", run.ended), reverse=True)
    found: dict[str, Run | None] = dict.fromkeys(_MODES)
    found[runs[0].mode] = runs[0]
    other = _MODES[1 - _MODES.index(runs[0].mode)]
    alike = [run for run in runs if run.mode == other and run.algorithm == runs[0].algorithm]
    found[other] = next((run for run in alike if run.env == runs[0].env), alike[0] if alike else None)
    if not alike:
        missing, remedy = f"{other} {runs[0].algorithm.upper()} run", f"rlcb train {runs[0].algorithm} --mode {other}"
        note(f"no {missing} below {folder}: {runs[0].name} is shown alone; `{remedy}` makes one")
    return found
