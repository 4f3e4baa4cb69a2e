"""The cards below the advice: the best group by each criterion."""

from rlcb.analysis.best import lead_text, listed, standing
from rlcb.analysis.metrics import METRIC
from rlcb.analysis.records import Card, ComparableSet
from rlcb.analysis.text import interval_text, metric_text

_CARDS = {  # by metric: the title, and the unit of its value
    "average_fps": ("Fastest", " steps/s"),
    "reward_at_equal_time": ("Best at equal time", ""),
    "reward_at_equal_steps": ("Best at equal steps", ""),
    "core_seconds_per_million": ("Cheapest per million steps", " s of CPU time"),
}


def make_cards(one: ComparableSet) -> tuple[Card, ...]:
    """The best group by each criterion that any group has a value of; none where there is only one group."""
    if len(one.measured) < 2:
        return ()
    found = []
    not_judged: dict[str, list[str]] = {}
    for metric, (title, unit) in _CARDS.items():
        if (
            metric == "core_seconds_per_million"
            and len({group.device for group in one.measured if not group.external}) > 1
        ):
            continue  # the time of a GPU is not part of it
        order = standing(one, metric)
        without = f"; not ranked: {order.missing}" if order.missing else ""
        if order.best:
            mean = order.best.metrics[metric]
            value = f"{metric_text(order.best, metric)}{unit}"
            interval = interval_text(mean.interval, METRIC[metric].form) if mean.interval else ""
            found.append(Card(metric, title, order.best.label, value, interval, f"{lead_text(order, metric)}{without}"))
        elif order.missing:
            not_judged.setdefault(order.missing, []).append(title.lower())
    found += [Card("", "Not judged", "", listed(titles), "", why) for why, titles in not_judged.items()]
    return tuple(found)
