"""Which updates get a console line, and how far it says the run is."""

from typing import Any

import pytest

from rlcb.config.load import build_config
from rlcb.config.schema import Config
from rlcb.console import clock
from rlcb.run import lines
from rlcb.run.lines import UpdateLines


class Shown(list[str]):
    """A console that keeps its lines."""

    def __init__(self, has_bar: bool = False):
        super().__init__()
        self.has_bar = has_bar

    def line(self, text: str) -> None:
        self.append(text)


def config(algorithm: str = "ppo", **keys: Any) -> Config:
    return build_config(None, {key: (key, value) for key, value in keys.items()}, algorithm=algorithm)


def metrics(update: int, seconds: float) -> dict[str, Any]:
    reward = {"rollout/ep_reward_mean": 6.416, "rollout/ep_reward_std": 1.234, "loss/total": 0.5}
    return {"update": update, "step": update * 4096, "time": seconds, "time/fps": 1523.2, **reward}


def shown(
    monkeypatch: pytest.MonkeyPatch, wanted: Config, updates: int, has_bar: bool = False, each: float = 1.0
) -> Shown:
    """The lines of a run whose updates take so many seconds each."""
    console = Shown(has_bar)
    printer = UpdateLines(console, wanted)  # type: ignore[arg-type]
    printer.begin(0.0, 0.0)
    for update in range(1, updates + 1):
        with monkeypatch.context() as changes:
            changes.setattr(lines, "monotonic", lambda now=update * each: now)
            printer.show(metrics(update, update * each), update / updates)
    printer.finish()
    return console


def numbers(text: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in text]


def test_a_line_is_due_after_so_many_updates_and_so_many_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert numbers(shown(monkeypatch, config(), 25)) == [1, 11, 21, 25]  # ten seconds, the default
    assert numbers(shown(monkeypatch, config(log_interval=4), 25)) == [1, 12, 24, 25]
    assert numbers(shown(monkeypatch, config(log_every_seconds=0), 5)) == [1, 2, 3, 4, 5]
    assert numbers(shown(monkeypatch, config(log_every_seconds=0, log_interval=3), 7)) == [1, 3, 6, 7]
    assert numbers(shown(monkeypatch, config(log_interval=4), 9, each=60.0)) == [1, 4, 8, 9]
    assert numbers(shown(monkeypatch, config(), 1)) == [1]


def test_a_terminal_gets_lines_by_updates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, config(log_interval=3), 7, has_bar=True)
    assert numbers(text) == [3, 6]
    assert text[0] == "Update 3 | Step 12,288 | FPS: 1523 | Reward: 6.42 ± 1.23"


def test_lines_say_how_far_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    start = "Update 1 | Step 4,096 | FPS: 1523 | Reward: 6.42 ± 1.23 | "
    assert shown(monkeypatch, config(), 4, each=902.0)[0] == f"{start}[0:15:02, 25 %, ETA 0:45:06]"
    timed = shown(monkeypatch, config(duration_hours=1.0), 4, each=902.0)
    assert timed[0] == f"{start}[0:15:02 of 1:00:00, 25 %]"
    impala = shown(monkeypatch, config("impala", duration_hours=1.0), 4, each=902.0)
    words = "[0.25h/1.00h] Step: 4,096 | Updates: 1 | FPS: 1523 | Loss: 0.5000 | [0:15:02 of 1:00:00, 25 %]"
    assert impala[0].splitlines() == [words, "  Mean Reward (last 100): 6.42"]


def test_a_resumed_run_expects_its_present_speed() -> None:
    console = Shown()
    printer = UpdateLines(console, config())  # type: ignore[arg-type]
    printer.begin(3600.0, 0.5)  # half of it took an hour, the next tenth two minutes
    printer.begin(0.0, 0.0)  # where workers are replaced; does not count
    printer.show(metrics(60, 3720.0), 0.6)
    assert console[0].endswith("[1:02:00, 60 %, ETA 0:08:00]")


def test_the_time_left_may_be_unknown() -> None:
    console = Shown()
    printer = UpdateLines(console, config())  # type: ignore[arg-type]
    printer.begin(10.0, 0.2)
    printer.show(metrics(1, 10.0), 0.2)
    assert console[0].endswith("[0:00:10, 20 %, ETA n/a]")


def test_hours_are_not_turned_into_days() -> None:
    assert [clock(0.4), clock(59.6), clock(3723), clock(360000)] == ["0:00:00", "0:01:00", "1:02:03", "100:00:00"]
