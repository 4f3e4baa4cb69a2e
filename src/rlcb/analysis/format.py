"""Values as text: the one place that decides how numbers and lists are printed, on screen and in reports."""

from collections.abc import Sequence
from typing import Any

from rlcb.analysis.metrics import METRIC
from rlcb.analysis.records import Group
from rlcb.analysis.statistics import Interval
from rlcb.analysis.untrusted import plain


def number_text(value: float | None, form: str) -> str:
    """A number in the given format, n/a where there is none."""
    return "n/a" if value is None else format(value, form)


def interval_text(interval: Interval | None, form: str) -> str:
    """An interval in brackets, n/a where there is none."""
    return f"[{interval[0]:{form}}, {interval[1]:{form}}]" if interval else "n/a"


def with_interval(text: str, interval: Interval | None, form: str) -> str:
    """A value that is text already, followed by its interval where there is one."""
    return f"{text} {interval_text(interval, form)}" if interval else text


def metric_text(group: Group, metric: str) -> str:
    """A group's mean of a metric."""
    return number_text(group.metrics[metric].mean, METRIC[metric].form)


def mean_and_interval(group: Group, metric: str) -> str:
    """A group's mean of a metric, followed by its interval where there is one."""
    return with_interval(metric_text(group, metric), group.metrics[metric].interval, METRIC[metric].form)


def mean_and_deviation(group: Group, metric: str) -> str:
    """A group's mean ± standard deviation over seeds, and how many seeds have a value if not all do."""
    deviation, some = group.metrics[metric].std, known_seeds(group, metric)
    spread = "" if deviation is None else f" ± {deviation:{METRIC[metric].form}}"
    return f"{metric_text(group, metric)}{spread} {some}".rstrip()


def known_seeds(group: Group, metric: str) -> str:
    """How many of a group's seeds have a value, empty if all or none of them do."""
    known, count = group.metrics[metric].n, len(group.runs)
    return f"({known} of {count})" if 0 < known < count else ""


def with_minus(text: str) -> str:
    """Numbers with a minus sign instead of a hyphen, for pages: it is as wide as a plus sign."""
    return text.replace("-", "−")


def p_text(p: float | None) -> str:
    """A p-value with four decimals."""
    return "< 0.0001" if p is not None and p < 1e-4 else number_text(p, ".4f")


def setting_text(value: Any) -> str:
    """The value of a setting."""
    return f"{value:g}" if isinstance(value, float) else plain(str(value))


def counted(count: float, noun: str) -> str:
    """A number with its noun, which gets an s unless the number is one."""
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
