"""Every run, and the machines they ran on, as tables of the report and as runs.csv."""

import json
import re
from collections.abc import Sequence
from typing import Any

from rlcb.analysis.format import counted, number_text, with_minus
from rlcb.analysis.records import Comparison
from rlcb.analysis.run import RUN_METRICS, Run
from rlcb.analysis.untrusted import number, plain, section
from rlcb.report.csv_text import csv_text
from rlcb.report.document import Cell, Row, Table, make_table

_MOST_MACHINES = 6
_OF_THE_RUN = ("num_workers", "num_threads", "device")  # part of `hardware`, but not of the machine


def _places(comparison: Comparison) -> dict[str, tuple[int, str]]:
    """The number of each run's set, from 1, and its group, by its name; without runs that only repeat another."""
    found: dict[str, tuple[int, str]] = {}
    for order, one in enumerate(comparison.sets, 1):
        for group in one.groups:
            names = [*(run.name for run in group.runs), *(failure.run for failure in group.failed)]
            found |= dict.fromkeys(names, (order, group.label))
    return found


def runs_table(comparison: Comparison, runs: Sequence[Run]) -> Table:
    """A row for each run."""
    places = _places(comparison)
    several = len(comparison.sets) > 1
    rows: list[Row] = []
    for run in runs:
        order, label = places.get(run.name, (0, run.label))
        rows.append(
            {
                "Run": run.name,
                **({"Set": str(order or "–")} if several else {}),
                "Group": Cell(label, group=order > 0),
                "Seed": "–" if run.seed is None else str(run.seed),
                "Status": run.status,
                "Steps": number_text(run.metrics.total_timesteps, ",.0f"),
                "Final reward": with_minus(number_text(run.metrics.final_reward, ".2f")),
                "Average FPS": number_text(run.metrics.average_fps, ",.0f"),
                "Remarks": "; ".join(text for text in (run.reason, *run.problems) if text) or "–",
            }
        )
    caption = "Every run that could be read; runs.csv has more of each."
    return make_table(caption, rows, "lrlrlrrrl" if several else "llrlrrrl")


def runs_csv(comparison: Comparison, runs: Sequence[Run]) -> str:
    """One row per run, with everything that is known of it as a whole."""
    task = ("run", "set", "group", "algorithm", "mode", "env", "levels", "seed", "status", "reason")
    rows: list[Sequence[object]] = [[*task, *RUN_METRICS, "evaluation_train", "evaluation_unseen", "problems"]]
    places = _places(comparison)
    for run in runs:
        order, label = places.get(run.name, (0, run.label))
        policy = comparison.sets[order - 1].evaluation_policy if order else "sampled"
        rows.append(
            [run.name, order or "", label, run.algorithm, run.mode, run.env, run.task.levels, run.seed, run.status,
             run.reason, *(getattr(run.metrics, name) for name in RUN_METRICS),
             *(run.evaluations.mean_reward(run.env, levels, policy) for levels in ("train", "unseen")),
             "; ".join(run.problems)]
        )  # fmt: skip
    return csv_text(rows)


def machine_table(runs: Sequence[Run]) -> Table:
    """The machines that the runs describe, a column each."""
    machines: dict[str, tuple[dict[str, Any], int]] = {}
    for run in runs:
        facts = {name: value for name, value in run.hardware.items() if name not in _OF_THE_RUN}
        key = json.dumps(facts, sort_keys=True, default=str)
        machines[key] = (facts, machines.get(key, (facts, 0))[1] + 1)
    shown = list(machines.values())[:_MOST_MACHINES]
    described = [_described(facts) if facts else {} for facts, _ in shown]
    rows = [
        (Cell(name), *(Cell(facts.get(name) or "not recorded") for facts in described))
        for name in dict.fromkeys(name for facts in described for name in facts)
    ]
    caption = "Where the runs ran, as they recorded it."
    if len(machines) > len(shown):
        caption += f" The first {len(shown)} of {len(machines)} descriptions."
    heads = ("", *(counted(count, "run") for _, count in shown))
    return Table(caption, heads, tuple(rows), "l" * len(heads))


def _described(facts: dict[str, Any]) -> dict[str, str]:
    """The facts about a machine in words; empty where one is not recorded."""
    quota, memory = number(facts.get("cgroup_quota")), number(facts.get("memory_gb"))
    sets = facts.get("instruction_sets")
    versions = {plain(name): plain(version) for name, version in section(facts, "versions").items()}
    program = versions.pop("rlcb", "")
    code = re.fullmatch(r"(.+)\+g([0-9a-f]+)(\.dirty)?", program)
    if code:
        program = f"{code[1]}, commit {code[2]}" + (", with uncommitted changes" if code[3] else "")
    kinds = [kind for kind in ("physical", "logical", "usable") if number(facts.get(f"{kind}_cores")) is not None]
    return {
        "Processor": plain(facts.get("cpu")),
        "Cores": ", ".join(f"{facts[f'{kind}_cores']} {kind}" for kind in kinds),
        "Quota": f"{quota:g} cores" if quota else "none",
        "Memory": f"{memory:g} GB" if memory else "",
        "Instruction sets": ", ".join(plain(name) for name in sets) if isinstance(sets, list) else "",
        "System": plain(facts.get("platform")),
        "Python": plain(facts.get("python")),
        "Packages": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "Code": program,
    }
