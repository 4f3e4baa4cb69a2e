"""What the machine allows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlcb.hardware import cgroup_cpu_quota, describe_machine, keep_freed_memory, usable_cpus


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


def test_affinity_counts() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one core only: nothing to take away")
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    code += "; from rlcb.hardware import usable_cpus; print(usable_cpus())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"
    assert usable_cpus() >= 1


def test_allocator_setting_is_taken_by_glibc() -> None:
    assert keep_freed_memory() is (sys.platform == "linux")


def test_threads_are_set_before_torch_loads() -> None:
    code = "from rlcb.hardware import prepare_process; assert prepare_process(1) == 1; import torch"
    code += "; print(torch.get_num_threads())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"


def test_description_has_what_a_reader_needs() -> None:
    machine = describe_machine()
    assert machine["usable_cores"] <= machine["logical_cores"]
    assert machine["memory_gb"] > 0
    assert machine["versions"]["torch"]
    assert machine["cpu"]


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_sleep_unless_the_user_wants_otherwise(given: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": given} if given else {}
    code = "import os; from rlcb.hardware import prepare_process; prepare_process(1)"
    code += "; print(os.environ['OMP_WAIT_POLICY'])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).strip() == expected
