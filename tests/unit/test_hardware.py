"""What the machine allows."""

import sys
from pathlib import Path

from rlcb.hardware import cgroup_cpu_quota, describe_machine, keep_freed_memory


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quota_of_cgroup_2_is_the_tightest_on_the_way_up(tmp_path: Path) -> None:
    member = tmp_path / "self"
    write(member, "0::/pod/box\n")
    assert cgroup_cpu_quota(tmp_path / "fs", member) is None
    write(tmp_path / "fs" / "pod" / "box" / "cpu.max", "max 100000\n")
    assert cgroup_cpu_quota(tmp_path / "fs", member) is None
    write(tmp_path / "fs" / "pod" / "cpu.max", "150000 100000\n")
    assert cgroup_cpu_quota(tmp_path / "fs", member) == 1.5
    write(tmp_path / "fs" / "cpu.max", "400000 100000\n")
    assert cgroup_cpu_quota(tmp_path / "fs", member) == 1.5


def test_quota_of_cgroup_1(tmp_path: Path) -> None:
    member = tmp_path / "self"
    write(member, "4:memory:/box\n3:cpu,cpuacct:/box\n")
    write(tmp_path / "fs" / "cpu" / "box" / "cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "fs" / "cpu" / "box" / "cpu.cfs_period_us", "100000\n")
    assert cgroup_cpu_quota(tmp_path / "fs", member) is None
    write(tmp_path / "fs" / "cpu" / "box" / "cpu.cfs_quota_us", "250000\n")
    assert cgroup_cpu_quota(tmp_path / "fs", member) == 2.5


def test_allocator_setting_is_taken_by_glibc() -> None:
    assert keep_freed_memory() is (sys.platform == "linux")


def test_description_has_what_a_reader_needs() -> None:
    machine = describe_machine()
    assert machine["usable_cores"] <= machine["logical_cores"]
    assert machine["memory_gb"] > 0
    assert machine["versions"]["torch"]
    assert machine["cpu"]
