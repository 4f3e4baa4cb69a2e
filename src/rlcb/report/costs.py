"""What training costs, in the report: shares of the processor, CPU time and energy."""

from collections.abc import Iterator

from rlcb.analysis.metrics import METRIC
from rlcb.analysis.records import ComparableSet
from rlcb.analysis.text import energy_unknown
from rlcb.report.document import Block
from rlcb.report.tables import Columns, group_table

_COSTS = ("cpu_percent", "limit_percent", "core_seconds_per_million", "energy_per_million")


def cost_blocks(one: ComparableSet) -> Iterator[Block]:
    """A row for each group with what it uses; nothing where none of that is known."""
    known = [name for name in _COSTS if any(group.metrics[name].n for group in one.groups)]
    if not known:
        return
    columns: Columns = {METRIC[name].title: name for name in known}
    caption = "CPU time: core-seconds that the run used per million steps"
    caption += ", GPU time not included." if any(group.device == "cuda" for group in one.groups) else "."
    if "energy_per_million" in known:
        caption += " Energy: of the machine’s processors, including everything else that ran on them."
    elif reason := energy_unknown(one):
        caption += f" Energy: unknown ({reason})."
    yield group_table(caption, one, columns)
