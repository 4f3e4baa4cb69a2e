"""What other programs take of a run's cores: readings of made-up /proc and /sys trees, amounts, the rule."""

import math
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from rlcb.disturbance import meter as meter_module
from rlcb.disturbance.meter import DisturbanceMeter
from rlcb.disturbance.readings import (
    System,
    clock_mhz,
    core_times,
    load_average,
    own_seconds,
    quota_times,
    waits,
)
from rlcb.disturbance.verdict import Disturbance, Sums, as_columns, judge
from rlcb.run.history import HistoryTotals


class Machine:
    """Files of /proc and /sys that a test writes; times in seconds."""

    def __init__(self, root: Path, cores: frozenset[int] = frozenset({0, 1})):
        self.root = root
        self.system = System(root / "proc", root / "cpu", root / "cgroup", cores, ticks=100)
        self.put("proc/self/cgroup", "0::/a/b\n")

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cores(self, *times: tuple[float, float, float]) -> None:
        """Busy, idle and stolen seconds of each core."""
        rows = [
            f"cpu{n} {busy * 50:.0f} {busy * 20:.0f} {busy * 20:.0f} {idle * 60:.0f} {idle * 40:.0f} "
            f"{busy * 4:.0f} {busy * 6:.0f} {stolen * 100:.0f} 7 7"
            for n, (busy, idle, stolen) in enumerate(times)
        ]
        self.put("proc/stat", "\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *rows, "intr 5 0 0", "ctxt 9"]) + "\n")

    def process(self, number: int, used: float, ended_children: float = 0.0, **waited: float) -> None:
        """A process with its CPU time, that of its ended children, and how long its threads have waited."""
        times = f"{used * 40:.0f} {used * 60:.0f} {ended_children * 100:.0f} 0"
        self.put(f"proc/{number}/stat", f"{number} (a ) name) S 1 1 1 0 -1 0 0 0 0 0 {times} 20 0 1 0\n")
        for thread, seconds in waited.items():
            self.put(f"proc/{number}/task/{thread}/schedstat", f"123 {seconds * 1e9:.0f} 5\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that a meter sees."""
    now = [100.0]
    monkeypatch.setattr(meter_module.time, "monotonic", lambda: now[0])
    return now


# Readings


def test_only_the_cores_that_the_run_may_use_are_looked_at(tmp_path: Path) -> None:
    machine = Machine(tmp_path, frozenset({1, 2}))
    machine.cores((50, 1, 9), (10, 20, 1), (2, 30, 0), (70, 0, 0))
    found = core_times(machine.system)
    assert found is not None
    assert (found.busy, found.idle, found.stolen) == pytest.approx((12, 50, 1))


def test_cores_that_are_not_listed_are_unknown_not_zero(machine: Machine) -> None:
    assert core_times(machine.system) is None
    machine.cores((1, 1, 0))  # a container that numbers its cores anew
    assert core_times(machine.system) is None


def test_own_time_counts_children_that_have_ended(machine: Machine) -> None:
    machine.process(7, used=3.0, ended_children=1.5)
    machine.process(8, used=2.0)
    assert own_seconds([7, 8, 9], machine.system) == pytest.approx(6.5)


def test_waiting_of_every_thread_counts(machine: Machine) -> None:
    machine.process(7, 1.0, t7=0.5, t8=0.25)
    assert waits([7, 99], machine.system) == {(7, "t7"): 0.5, (7, "t8"): 0.25}


def test_a_kernel_that_does_not_count_waiting_is_unknown(machine: Machine) -> None:
    machine.put("proc/7/task/7/schedstat", "0 0 0\n")
    assert waits([7], machine.system) is None
    assert waits([99], machine.system) is None


def test_quota_of_cgroups_of_both_versions(tmp_path: Path) -> None:
    two = Machine(tmp_path / "two")
    assert quota_times(two.system) == {}
    two.put("cgroup/a/cpu.stat", "usage_usec 9000000\nnr_throttled 3\nthrottled_usec 250000\n")
    two.put("cgroup/a/b/cpu.stat", "usage_usec 5000000\nnr_throttled 4\nthrottled_usec 500000\n")
    inner, outer = quota_times(two.system).values()
    assert (inner.throttled, inner.used) == pytest.approx((0.5, 5.0))
    assert (outer.throttled, outer.used) == pytest.approx((0.25, 9.0))
    one = Machine(tmp_path / "one")
    one.put("proc/self/cgroup", "4:cpu,cpuacct:/c\n")
    one.put("cgroup/cpu/c/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 2000000000\n")
    one.put("cgroup/cpu/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    one.put("cgroup/cpuacct/c/cpuacct.usage", "4000000000\n")
    inner, outer = quota_times(one.system).values()
    assert (inner.throttled, inner.used) == pytest.approx((2.0, 4.0))
    assert (outer.throttled, outer.used) == (0, None)


def test_clock_and_load(machine: Machine) -> None:
    assert clock_mhz(machine.system) is None
    assert load_average(machine.system) is None
    machine.put("proc/cpuinfo", "processor : 0\ncpu MHz\t\t: 2000.0\nprocessor : 1\ncpu MHz\t\t: 3000.0\n")
    machine.put("proc/loadavg", "1.5 1.0 0.5 1/99 1234\n")
    assert clock_mhz(machine.system) == 2500
    assert load_average(machine.system) == 1.5
    machine.put("cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n")
    machine.put("cpu/cpu1/cpufreq/scaling_cur_freq", "2200000\n")
    assert clock_mhz(machine.system) == 2000


# Amounts between two looks


def test_amounts_between_two_looks(machine: Machine, clock: list[float]) -> None:
    machine.cores((10, 10, 0), (10, 10, 0))
    machine.process(7, 4.0, t7=1.0)
    machine.put("cgroup/a/b/cpu.stat", "usage_usec 1000000\nthrottled_usec 0\n")
    meter = DisturbanceMeter(machine.system)
    assert meter.look([7]) == {}
    machine.cores((19, 10.5, 0.5), (15, 15, 0))
    machine.process(7, 12.0, t7=3.0, t8=0.5)
    machine.put("cgroup/a/b/cpu.stat", "usage_usec 10000000\nthrottled_usec 1500000\n")
    clock[0] += 10
    assert meter.look([7]) == pytest.approx(
        {
            "measured_seconds": 10,
            "core_seconds": 20,
            "own_core_seconds": 8,
            "others_core_seconds": 6,
            "idle_core_seconds": 5.5,
            "stolen_core_seconds": 0.5,
            "waited_core_seconds": 2.5,
            "throttled_core_seconds": 1.5,
            "throttled_by_others_core_seconds": 1.0,
        }
    )


def test_only_the_cgroup_that_throttles_says_who_used_its_quota(machine: Machine, clock: list[float]) -> None:
    """Others in a group around it, which has no quota, do not use up that of the run's own group."""
    meter, machine_wide = DisturbanceMeter(machine.system), "usage_usec {}\nthrottled_usec 0\n"
    for seconds in (0, 10):
        machine.process(7, float(seconds))
        machine.put("cgroup/a/cpu.stat", machine_wide.format(seconds * 50_000_000))
        machine.put("cgroup/a/b/cpu.stat", f"usage_usec {seconds * 1_000_000}\nthrottled_usec {seconds * 500_000}\n")
        found = meter.look([7])
        clock[0] += 10
    assert found["throttled_core_seconds"] == pytest.approx(5)
    assert found["throttled_by_others_core_seconds"] == pytest.approx(0)


def test_a_thread_whose_number_was_anothers_has_waited_since_its_start(machine: Machine, clock: list[float]) -> None:
    machine.process(7, 1.0, t7=5.0)
    meter = DisturbanceMeter(machine.system)
    meter.look([7])
    machine.process(7, 1.0, t7=0.5)
    clock[0] += 1
    assert meter.look([7])["waited_core_seconds"] == pytest.approx(0.5)


def test_rounding_of_times_adds_up_to_nothing(machine: Machine, clock: list[float]) -> None:
    """The kernel gives times in hundredths of a second: what is negative now is missing later."""
    meter, found = DisturbanceMeter(machine.system), []
    for second in range(41):
        machine.cores((second, 0, 0), (0, second, 0))
        machine.process(7, second + (0.1 if second % 2 else 0.0))
        found.append(meter.look([7]).get("others_core_seconds", 0.0))
        clock[0] += 1
    assert min(found) >= 0
    assert sum(found) < 0.11


def test_what_cannot_be_read_is_left_out(machine: Machine, clock: list[float]) -> None:
    meter = DisturbanceMeter(machine.system)
    meter.look([7])
    clock[0] += 1
    assert set(meter.look([7])) == {"measured_seconds", "core_seconds", "own_core_seconds"}


def test_nonsense_in_a_file_of_the_system_is_unknown(machine: Machine, clock: list[float]) -> None:
    machine.put("proc/7/stat", "7 (x) S 1 1 1 0 -1 0 0 0 0 0 a b c d 20\n")
    meter = DisturbanceMeter(machine.system)
    for _ in range(3):
        assert meter.look([7]) == {}
        clock[0] += 10


def test_looks_are_so_far_apart_that_they_cost_little(
    machine: Machine, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.cores((1, 1, 0), (1, 1, 0))
    machine.process(7, 1.0, t7=1.0)
    used = [0.0]

    def thread_time() -> float:
        used[0] += 0.001  # a look takes a millisecond
        return used[0]

    monkeypatch.setattr(meter_module.time, "thread_time", thread_time)
    meter, looks = DisturbanceMeter(machine.system), 0
    for _ in range(1000):
        clock[0] += 0.25
        looks += bool(meter.look([7]))
    assert 100 < looks < 140  # 250 seconds, one look every two


def test_looking_at_this_process_for_real() -> None:
    meter = DisturbanceMeter()
    numbers = [int(Path("/proc/self").resolve().name)]
    meter.look(numbers, at_once=True)
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    found = meter.look(numbers, at_once=True)
    assert found["own_core_seconds"] >= 0.2
    assert found["measured_seconds"] > 0


# The rule


def sums(seconds: float = 10.0, cores: int = 2, own: float = 0.0, **others: float) -> dict[str, float]:
    known = {f"{name}_core_seconds": amount for name, amount in others.items()}
    return {"measured_seconds": seconds, "core_seconds": seconds * cores, "own_core_seconds": own, **known}


NOTHING = {"stolen": 0.0, "throttled": 0.0, "throttled_by_others": 0.0}


@pytest.mark.parametrize(
    ("amounts", "disturbed"),
    [
        # Recorded on 2 cores of an AMD EPYC: sequential and 2 workers, beside two busy loops of other programs.
        (sums(8.2, own=7.2, others=9.18, idle=0.0, waited=2.18, **NOTHING), True),
        (sums(8.2, own=8.15, others=8.2, idle=0.0, waited=8.6, **NOTHING), True),
        # Alone: nothing but the system's own small programs.
        (sums(own=10.0, others=0.2, idle=9.8, waited=0.1, **NOTHING), False),
        # More threads than cores wait for each other: the run's own doing.
        (sums(own=19.6, others=0.3, idle=0.1, waited=30.0, **NOTHING), False),
        # Others on cores that were idle: a large host.
        (sums(cores=64, own=40.0, others=300.0, idle=300.0, waited=0.4, **NOTHING), False),
        # The same host with no idle core left.
        (sums(cores=64, own=40.0, others=600.0, idle=0.0, waited=20.0, **NOTHING), True),
        # A busy loop beside one thread on two cores takes the idle one: nothing is left for the system and for caches.
        (sums(own=9.9, others=10.0, idle=0.1, waited=0.2, **NOTHING), True),
        # A neighbour that takes a fifth of the cores from two workers.
        (sums(own=16.0, others=4.0, idle=0.0, waited=4.0, **NOTHING), True),
        # A hypervisor that takes a tenth.
        (sums(own=17.8, others=0.2, idle=0.0, waited=0.2, stolen=2.0, throttled=0.0, throttled_by_others=0.0), True),
        (sums(own=19.4, others=0.2, idle=0.0, waited=0.2, stolen=0.4, throttled=0.0, throttled_by_others=0.0), False),
        # A quota that the run uses up alone is the size of its machine; one that others share is not.
        (sums(cores=64, own=20.0, others=400.0, idle=200.0, waited=15.0, stolen=0.0, throttled=15.0,
              throttled_by_others=0.0), False),
        (sums(cores=64, own=14.0, others=400.0, idle=200.0, waited=15.0, stolen=0.0, throttled=15.0,
              throttled_by_others=6.0), True),
        # Unknown, unless what is known decides it.
        (sums(own=10.0), None),
        (sums(own=10.0, others=0.2, idle=9.8, stolen=0.0), False),
        (sums(own=10.0, others=4.0, idle=6.0, stolen=0.0), None),
        (sums(own=10.0, waited=0.1), False),
        (sums(own=10.0, waited=9.0), None),
        (sums(own=10.0, others=0.2, idle=9.8, waited=8.0, stolen=0.0, throttled=8.0), None),
        ({}, None),
        # Too short to say.
        (sums(0.3, own=0.1, others=0.5, idle=0.0, waited=0.3, **NOTHING), None),
    ],
)  # fmt: skip
def test_the_rule(amounts: dict[str, float], disturbed: bool | None) -> None:
    assert judge(amounts, {}).disturbed is disturbed


def test_the_figures_and_their_words() -> None:
    found = judge(sums(own=8.0, others=9.6, idle=0.0, waited=4.0, stolen=0.6, throttled=0.0), {"clock_mhz": 2500.0})
    assert found.others_percent == 48
    assert found.stolen_percent == 3
    assert found.throttled_percent == 0
    assert found.waited_percent == pytest.approx(33.33)
    assert found.lost_percent == pytest.approx(100 * 4.2727 / 12.2727, abs=0.01)
    assert found.clock_mhz == 2500
    assert found.words == "other programs used 48 % of the cores (35 % of its CPU time lost), stolen 3 %, throttled 0 %"
    assert Disturbance().words.startswith("other programs used an unknown share of the cores, stolen an unknown share")


def test_sums_over_lines_are_those_over_looks_also_after_a_resume() -> None:
    first = sums(5.0, own=4.0, others=4.0, idle=2.0, waited=2.0, **NOTHING) | {"load_average": 1.0}
    second = sums(15.0, own=29.0, others=0.0, idle=1.0, waited=0.0, **NOTHING) | {"load_average": 3.0}
    whole, line = HistoryTotals(), {"update": 1, "step": 1, "time": 1.0, "time/fps": 1.0}
    for amounts in ({}, first, {}, second):
        whole.add({**line, **as_columns(amounts)})
    found, expected = whole.use_of_cores.verdict(), Sums()
    expected.add(first)
    expected.add(second)
    assert asdict(found) == asdict(expected.verdict())
    assert found.measured_seconds == 20
    assert found.others_percent == 10
    assert found.load_average == 2
    assert found.disturbed is True
    assert as_columns({}) == {}
    assert as_columns(first)["resource/lost_percent"] == pytest.approx(100 / 3, abs=0.01)


@pytest.mark.parametrize("damage", ["7", None, math.nan, math.inf, -1.0, [1.0]])
def test_damaged_lines_add_nothing(damage: object) -> None:
    total = Sums()
    total.add({"resource/others_core_seconds": damage, "resource/load_average": damage}, "resource/")
    assert total.verdict() == Disturbance()
