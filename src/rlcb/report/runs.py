"""Every run, and the machines they ran on, for the report."""

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from rlcb.analysis.records import Comparison
from rlcb.analysis.run import FIGURES, Run
from rlcb.analysis.untrusted import number, plain, section
from rlcb.report.document import Cell, Table, cells
from rlcb.report.tables import Colours

_MOST_MACHINES = 6
_OF_THE_RUN = ("num_workers", "num_threads", "device")


def places(comparison: Comparison) -> dict[str, tuple[int, str]]:
    """Each run's set, from 1, and group, by its name; without those that only repeat another."""
    found: dict[str, tuple[int, str]] = {}
    for order, one in enumerate(comparison.sets, 1):
        for group in one.groups:
            names = [*(run.name for run in group.runs), *(failure.run for failure in group.failed)]
            found |= dict.fromkeys(names, (order, group.label))
    return found


def runs_table(comparison: Comparison, runs: Sequence[Run], colours: Colours) -> Table:
    """A row for each run."""
    where = places(comparison)
    several = len(comparison.sets) > 1
    heads = ["Run", *["Set"] * several, "Group", "Seed", "Status", "Steps", "Final reward", "Average FPS", "Remarks"]
    rows = []
    for run in runs:
        order, label = where.get(run.name, (0, run.label))
        figures = run.figures
        remarks = "; ".join(text for text in (run.reason, *run.problems) if text)
        mark = Cell(label, colour=colours.get(label) if order else None)
        row: list[str | Cell] = [run.name, *[str(order or "–")] * several, mark]
        row += ["–" if run.seed is None else str(run.seed), run.status, _figure(figures.total_timesteps, ",.0f")]
        row += [_figure(figures.final_reward, ".2f"), _figure(figures.average_fps, ",.0f"), remarks or "–"]
        rows.append(cells(*row))
    align = "l" + "r" * several + "lrlrrrl"
    return Table("Every run that could be read; runs.csv has more of each.", align, tuple(heads), tuple(rows))


def _figure(value: float | None, form: str) -> str:
    return "n/a" if value is None else f"{value:{form}}".replace("-", "−")


def runs_csv(comparison: Comparison, runs: Sequence[Run]) -> str:
    """One row per run, with everything that is known of it as a whole."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    task = ("run", "set", "group", "algorithm", "mode", "env", "levels", "seed", "status", "reason")
    rows.writerow([*task, *FIGURES, "evaluation_train", "evaluation_unseen", "problems"])
    where = places(comparison)
    for run in runs:
        order, label = where.get(run.name, (0, run.label))
        policy = comparison.sets[order - 1].evaluation_policy if order else "sampled"
        found = [run.evaluations.find(run.env, levels, policy) for levels in ("train", "unseen")]
        rows.writerow(
            [run.name, order or "", label, run.algorithm, run.mode, run.env, run.levels, run.seed, run.status,
             run.reason, *(getattr(run.figures, name) for name in FIGURES),
             *(one.mean_reward if one and one.complete else None for one in found), "; ".join(run.problems)]
        )  # fmt: skip
    return text.getvalue()


def machine_table(runs: Sequence[Run]) -> Table:
    """The machines that the runs describe, a column each."""
    machines: dict[str, tuple[dict[str, Any], int]] = {}
    for run in runs:
        facts = {name: value for name, value in run.hardware.items() if name not in _OF_THE_RUN}
        key = json.dumps(facts, sort_keys=True, default=str)
        machines[key] = (facts, machines.get(key, (facts, 0))[1] + 1)
    shown = list(machines.values())[:_MOST_MACHINES]
    described = [(_described(facts) if facts else {}, count) for facts, count in shown]
    rows = [
        cells(name, *(facts.get(name) or "not recorded" for facts, _ in described))
        for name in dict.fromkeys(name for facts, _ in described for name in facts)
    ]
    heads = [f"{count} run{'s' * (count != 1)}" for _, count in described]
    caption = "Where the runs ran, as they recorded it."
    if len(machines) > len(shown):
        caption += f" The first {len(shown)} of {len(machines)} descriptions."
    return Table(caption, "l" * (len(heads) + 1), ("", *heads), tuple(rows))


def _described(facts: dict[str, Any]) -> dict[str, str]:
    """A machine's facts in words; empty where one is not recorded."""
    quota, memory = number(facts.get("cgroup_quota")), number(facts.get("memory_gb"))
    sets = facts.get("instruction_sets")
    versions = {plain(name): plain(version) for name, version in section(facts, "versions").items()}
    code = re.fullmatch(r"(.+)\+g([0-9a-f]+)(\.dirty)?", versions.pop("rlcb", ""))
    commit = f"{code[1]}, commit {code[2]}{', with uncommitted changes' * bool(code[3])}" if code else ""
    return {
        "Processor": plain(facts.get("cpu")),
        "Cores": ", ".join(
            f"{facts[name]} {word}" for name, word in
            (("physical_cores", "physical"), ("logical_cores", "logical"), ("usable_cores", "usable"))
            if number(facts.get(name)) is not None
        ),
        "Quota": f"{quota:g} cores" if quota else "none",
        "Memory": f"{memory:g} GB" if memory else "",
        "Instruction sets": ", ".join(plain(name) for name in sets) if isinstance(sets, list) else "",
        "System": plain(facts.get("platform")),
        "Python": plain(facts.get("python")),
        "Packages": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "Code": commit or plain(section(facts, "versions").get("rlcb")),
    }  # fmt: skip
