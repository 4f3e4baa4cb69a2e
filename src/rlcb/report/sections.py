"""The content of a report: which sections it has, in which order."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from rlcb.analysis.grouping import shown_config
from rlcb.analysis.machines import gpus_of, machine_of, nodes_of
from rlcb.analysis.plots import MOST_CURVES
from rlcb.analysis.records import Advice, ComparableSet, Comparison
from rlcb.analysis.run import Run
from rlcb.analysis.text import number_text, with_minus
from rlcb.analysis.unjudged import disturbed_text
from rlcb.analysis.untrusted import number, plain, section
from rlcb.report import tables
from rlcb.report.costs import cost_blocks
from rlcb.report.document import Block, Cards, Cell, Document, Row, Section, Table, Text, make_table
from rlcb.report.figures import SetPictures
from rlcb.report.games import game_sections
from rlcb.report.progress import Progress, progress_table
from rlcb.report.reaching import reaching_blocks
from rlcb.report.recipes import recipe_sections
from rlcb.words import counted, reward_text

_MOST_DRAWN = 16  # sets with pictures: as many as there are games
_MOST_VERDICTS = 4
_MOST_NAMED = 5  # runs with the same reason
_MOST_MACHINES = 6
# Part of `hardware`, but not of the machine; nodes are shown by their names and cores alone.
_OF_THE_RUN = ("num_workers", "num_learners", "num_threads", "device", "gpu", "gpu_memory_gb", "nodes", "jobs_beside")
_OF_LEVELS = ("Generalisation gap",)
_GLOSSARY = Path(__file__).with_name("templates") / "glossary.yaml"


@dataclass(frozen=True)
class Origin:
    """Where a report comes from."""

    runs: Sequence[Run]
    warnings: Sequence[str]  # about what could not be read
    command: str
    made: datetime
    progress: Progress | None = None  # None: nothing is waited for


def make_document(comparison: Comparison, origin: Origin) -> Document:
    """The whole report."""
    sets = comparison.sets
    labels = dict.fromkeys(group.label for one in sets for group in one.groups)
    colours = {label: place for place, label in enumerate(labels)}
    sections = [Section("Verdict", "verdict", tuple(_verdict(comparison))), *game_sections(comparison, colours)]
    if origin.progress and origin.progress.runs:
        sections.insert(1, Section("Runs in progress", "under-way", (progress_table(origin.progress.runs),)))
    sections += recipe_sections(comparison)
    if len(sets) > 1:
        sections.append(Section("Overview", "overview", (tables.set_table(sets),)))
    if comparison.machine_tables:
        across = tuple(
            block for table in comparison.machine_tables for block in tables.machine_blocks(comparison, table)
        )
        sections.append(Section("The same task on different machines", "machines", across, short="Across machines"))
    # With more curves and sets each one shows less, so that the page stays small enough to open.
    num_curves = sum(min(len(one.groups), MOST_CURVES) for one in sets[:_MOST_DRAWN])
    points = max(40, min(200, 9000 // max(1, num_curves)))
    most_pairs = max(10, min(60, 240 // len(sets)))
    for order, one in enumerate(sets, 1):
        pictures = SetPictures(one, f"report_{order}", colours, points) if order <= _MOST_DRAWN else None
        sections += _set_sections(one, order if len(sets) > 1 else None, pictures, most_pairs)
    terms = Text("terms", _glossary(sets))
    more = Text("paragraph", "docs/metrics.md, which comes with the program, defines every metric.")
    sections += [
        Section("Machine", "machine", (_machine_table(origin.runs),)),
        *_settings(sets),
        Section("Not part of the main comparison", "excluded", tuple(_excluded(comparison, origin))),
        Section("All runs", "runs", (_runs_table(comparison, origin.runs),)),
        Section("How to read this", "reading", (terms, more)),
        Section("How this was made", "command", (Text("code", origin.command),)),
    ]
    games = list(dict.fromkeys(one.env for one in sets))
    algorithms = list(dict.fromkeys(run.algorithm.upper() for run in origin.runs))
    facts = (
        f"algorithm{'s' if len(algorithms) > 1 else ''}: {', '.join(algorithms)}",
        counted(len(origin.runs), "run"),
        f"{origin.made:%Y-%m-%d %H:%M}{f'{origin.made::%S}' if origin.progress else ''}",
    )
    title = f"Benchmark report: {', '.join(games[:4])}{', …' if len(games) > 4 else ''}"
    if not origin.progress:
        return Document(title, facts, tuple(sections), colours)
    said = f"{origin.progress.text}. Unfinished runs are marked as unfinished and not judged."
    return Document(title, facts, tuple(sections), colours, said, origin.progress.seconds)


def _glossary(sets: Sequence[ComparableSet]) -> dict[str, str]:
    """Terms and their definitions, without those of levels where no environment has any."""
    terms: dict[str, str] = yaml.safe_load(_GLOSSARY.read_text(encoding="utf-8"))
    levels = any(one.levels for one in sets)
    return {term: text for term, text in terms.items() if levels or term not in _OF_LEVELS}


def _verdict(comparison: Comparison) -> Iterator[Block]:
    """What the main set shows, or all games of the main task; with few finished sets, what each of them shows."""
    finished = [one for one in comparison.sets if one.finished]
    games = comparison.scores_of(comparison.sets[0])
    if games or not 1 < len(finished) <= _MOST_VERDICTS:
        yield from advice_blocks(comparison.advice, comparison.verdict, lead=True)
    if not 1 < len(finished) <= _MOST_VERDICTS:
        return
    for one in finished:
        yield from advice_blocks(one.advice, one.verdict, lead=not games)
    lost = sum(item.reason.startswith(("failed", "unfinished", "repeats")) for item in comparison.excluded)
    also = f" {counted(lost, 'run')} failed, did not finish or repeated another run." if lost else ""
    across = " Runs on different machines are shown side by side below." if comparison.machine_tables else ""
    rest = f"These {len(finished)} sets of runs are not comparable with each other."
    if all(comparison.is_main_task(one) for one in finished):
        rest = "Rewards of different games are not comparable with each other; normalised scores are."
    yield Text("paragraph", f"{rest}{across}{also}")


def advice_blocks(advice: Advice | None, verdict: str, lead: bool) -> Iterator[Block]:
    """What to use, the best by each criterion, and what that is based on."""
    if advice is None:
        yield Text("lead" if lead else "paragraph", verdict)
        return
    yield Text("lead" if lead else "paragraph", advice.text)
    if advice.cards:
        yield Cards("Best by each criterion", advice.cards)
    yield Text("paragraph", verdict)


def _set_sections(
    one: ComparableSet, order: int | None, pictures: SetPictures | None, most_pairs: int
) -> Iterator[Section]:
    """A set's summary, then a section for each aspect; `order` is None for the only set of a report."""
    evaluation: list[Block] = [Text("paragraph", "No run of this set has been evaluated; use rlcb evaluate.")]
    if one.evaluated:
        evaluation = [*(pictures.evaluation() if pictures else ()), tables.evaluation_table(one)]
    parts: list[tuple[str, str, Iterable[Block]]] = [
        ("Variants", "variants", tables.variant_blocks(one)),
        ("Learning curves", "curves", pictures.learning() if pictures else ()),
        ("Speed", "speed", pictures.fps() if pictures else ()),
        ("Where the time goes", "time", pictures.time() if pictures else ()),
        ("Cost", "cost", cost_blocks(one)),
        ("Evaluation and generalisation gap" if one.levels else "Evaluation", "evaluation", evaluation),
        ("All pairs", "pairs", [tables.pair_table(one, most_pairs)]),
        ("Time to reward", "reaching", reaching_blocks(one)),
    ]
    yield _summary(one, order, drawn=pictures is not None)
    prefix, level = (f"set-{order}-", 2) if order else ("", 1)
    for heading, anchor, content in parts:
        blocks = tuple(content)
        if blocks:
            yield Section(heading, prefix + anchor, blocks, level)


def _summary(one: ComparableSet, order: int | None, drawn: bool) -> Section:
    """The verdict on a set, its groups and its winners."""
    blocks: list[Block] = (
        [] if drawn else [Text("paragraph", f"Plots are drawn for the first {_MOST_DRAWN} sets only.")]
    )
    blocks += [tables.summary_table(one), *([tables.winner_table(one)] if one.pairs else [])]
    blocks += [Text("items", one.notes)] if one.notes else []
    if not order:
        return Section("Summary", "set-1", (Text("paragraph", one.title), *blocks))
    verdict = one.verdict.removeprefix(f"{one.title}: ")
    found = advice_blocks(one.advice, verdict[:1].upper() + verdict[1:], lead=False)
    short = f"{order}. {one.env}" + ("" if one.finished else ", unfinished")
    return Section(f"{order}. {one.title}", f"set-{order}", (*found, *blocks), short=short)


def _settings(sets: Sequence[ComparableSet]) -> Iterator[Section]:
    """The settings in which groups differ, and all settings of each group."""
    several = len(sets) > 1
    if several:
        yield Section("Settings", "settings", ())
    for order, one in enumerate(sets, 1):
        blocks = list(tables.difference_blocks(one))
        for group in one.measured:
            config = yaml.safe_dump(shown_config(group.runs[0]), sort_keys=False, allow_unicode=True)
            text = re.sub(r"[^\n\x20-\x7e\xa0-\uffff]", "?", config)
            blocks.append(Text("code", text, f"{group.label}: all settings (seed {group.runs[0].seed})"))
        title, anchor = (f"{order}. {one.title}", f"settings-{order}") if several else ("Settings", "settings")
        yield Section(title, anchor, tuple(blocks), 2 if several else 1)


def _excluded(comparison: Comparison, origin: Origin) -> Iterator[Block]:
    """Runs that take no part in the main comparison, by reason; and what could not be read at all."""
    reasons: dict[str, list[str]] = {}
    for item in comparison.excluded:
        reasons.setdefault(item.reason, []).append(item.run)
    if reasons:
        rows = []
        for reason, runs in reasons.items():
            more = [f"{len(runs) - _MOST_NAMED} more, listed below"] if len(runs) > _MOST_NAMED else []
            named = ",\n".join(runs[:_MOST_NAMED] + more)
            rows.append({"Reason": reason, "Runs": str(len(runs)), "Directories": named})
        caption = "Runs that failed, did not finish, repeat another or belong to other sets, which are shown above."
        yield make_table(caption, rows, "lrl")
    if origin.warnings:
        yield Text("paragraph", "Warnings while reading the runs:")
        yield Text("items", origin.warnings)
    if not reasons and not origin.warnings:
        yield Text("paragraph", "All runs are part of the comparison.")


def _runs_table(comparison: Comparison, runs: Sequence[Run]) -> Table:
    """A row for each run."""
    places = comparison.places()
    several = len(comparison.sets) > 1
    rows: list[Row] = []
    for run in runs:
        order, label = places.get(run.name, (0, run.label))
        beside = f"shared the machine with up to {counted(run.jobs_beside, 'other run')}" if run.jobs_beside else ""
        rows.append(
            {
                "Run": run.name,
                **({"Set": str(order or "–")} if several else {}),
                "Group": Cell(label, group=order > 0),
                "Seed": "–" if run.seed is None else str(run.seed),
                "Status": run.status,
                "Steps": number_text(run.metrics.total_timesteps, ",.0f"),
                "Final reward": with_minus(reward_text(run.metrics.final_reward)),
                "Episode length": number_text(run.metrics.final_episode_length, ",.0f"),
                "Average FPS": number_text(run.metrics.average_fps, ",.0f"),
                "Remarks": "; ".join(text for text in (run.reason, beside, disturbed_text(run), *run.problems) if text)
                or "–",
            }
        )
    caption = "All runs that could be read; runs.csv has more columns."
    return make_table(caption, rows, "lrlrlrrrrl" if several else "llrlrrrrl")


def _machine_table(runs: Sequence[Run]) -> Table:
    """The machines that the runs describe, a column each."""
    machines: dict[str, tuple[dict[str, Any], int]] = {}
    for run in runs:
        facts = {name: value for name, value in run.hardware.items() if name not in _OF_THE_RUN}
        if gpus := gpus_of(run.hardware):
            facts["gpus"] = gpus
        if nodes_of(run.hardware):
            facts["cluster"] = machine_of(run.hardware)
        key = json.dumps(facts, sort_keys=True, default=str)
        machines[key] = (facts, machines.get(key, (facts, 0))[1] + 1)
    shown = list(machines.values())[:_MOST_MACHINES]
    described = [_described(facts) if facts else {} for facts, _ in shown]
    rows = [
        (Cell(name), *(Cell(facts.get(name) or ("–" if name == "Nodes" else "not recorded")) for facts in described))
        for name in sorted(dict.fromkeys(name for facts in described for name in facts), key="Nodes".__ne__)
    ]
    caption = "Machines of the runs, as recorded by the runs."
    if any("cluster" in facts for facts, _ in shown):
        caption += " For a cluster: its nodes and the machine that started the runs."
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
    cluster, driver = plain(facts.get("cluster")), plain(facts.get("gpu_driver"))
    gpus = ", ".join(gpus_of(facts)) or ("none" if "gpus" in facts else "")
    kinds = [kind for kind in ("physical", "logical", "usable") if number(facts.get(f"{kind}_cores")) is not None]
    return {
        **({"Nodes": cluster} if cluster else {}),
        "Processor": plain(facts.get("cpu")),
        "Cores": ", ".join(f"{facts[f'{kind}_cores']} {kind}" for kind in kinds),
        "Quota": counted(quota, "core") if quota else "none",
        "Memory": f"{memory:g} GB" if memory else "",
        "GPU": f"{gpus}, driver {driver}" if driver else gpus,
        "Instruction sets": ", ".join(plain(name) for name in sets) if isinstance(sets, list) else "",
        "System": plain(facts.get("platform")),
        "Python": plain(facts.get("python")),
        "Packages": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "Code": program,
    }
