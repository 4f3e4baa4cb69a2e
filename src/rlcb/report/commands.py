"""The commands that compare runs: read, compare, print, write."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rlcb.analysis.comparison import compare
from rlcb.analysis.load import find_runs, is_run, load_run, load_runs
from rlcb.analysis.plots import IMAGE_FORMATS, as_image, figure_four_panels
from rlcb.analysis.run import Run
from rlcb.analysis.text import comparison_text
from rlcb.analysis.untrusted import plain
from rlcb.console import note, warn
from rlcb.errors import UsageError
from rlcb.files import write_whole
from rlcb.report.sections import Origin
from rlcb.report.two_runs import remarks, two_run_report, two_run_table
from rlcb.report.write import make_folder, write_comparison

_MODES = ("sequential", "parallel")


def compare_any(paths: Sequence[Path], output: Path, threshold: float | None, seed: int) -> int:
    """`rlcb compare`: any number of runs."""
    unread: list[str] = []

    def warn_and_keep(text: str) -> None:
        warn(text)
        if text.startswith("left out"):
            unread.append(plain(text))

    runs = load_runs(paths, warn_and_keep)
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
    chosen = {mode: _named_run(mode, name) for mode, name in given.items() if name}
    if newest and len(chosen) < len(_MODES):
        chosen = {**_newest_runs(newest), **chosen}
    if not chosen:
        raise UsageError("say which runs: --sequential DIR, --parallel DIR, or both")
    runs = [chosen[mode] for mode in _MODES if mode in chosen]
    for run in runs:
        if run.problems:
            warn(f"{run.name}: used, but {'; '.join(run.problems)}")
    make_folder(output.parent)
    sets, remarked = compare(runs).sets, remarks(runs)
    title = sets[0].title if len(sets) == 1 else "; ".join(remarked)
    picture = figure_four_panels([group for one in sets for group in one.groups], title)
    report = output.with_name("comparison_report.txt")
    both = [chosen.get(mode) for mode in _MODES]
    names = [given[mode] or (chosen[mode].name if mode in chosen else None) for mode in _MODES]
    write_whole(output, as_image(picture, output.suffix.lower()))
    write_whole(report, two_run_report(names, *both).encode())
    print(two_run_table(*both), *remarked, f"Written: {output}", f"Written: {report}", sep="\n", flush=True)
    return 0


def _named_run(mode: str, name: str) -> Run:
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


def _newest_runs(folder: Path) -> dict[str, Run]:
    """The newest run below a folder and the newest of its algorithm in the other mode, finished ones first."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such directory: there are no runs to compare yet; make train-timed makes one")
    runs = sorted(load_runs([folder], warn), key=lambda run: (run.status == "finished", run.ended), reverse=True)
    newest = runs[0]
    other_mode = "parallel" if newest.mode == "sequential" else "sequential"
    others = [run for run in runs if (run.mode, run.algorithm) == (other_mode, newest.algorithm)]
    if not others:
        missing = f"no {other_mode} {newest.algorithm.upper()} run below {folder}: {newest.name} is shown alone"
        note(f"{missing}; `rlcb train {newest.algorithm} --mode {other_mode}` makes one")
        return {newest.mode: newest}
    other = next((run for run in others if run.env == newest.env), others[0])
    return {newest.mode: newest, other.mode: other}
