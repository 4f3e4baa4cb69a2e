"""What runs ran on: cores used and speed-up per core, clusters, GPUs, and the same task on different machines."""

import re
from pathlib import Path
from typing import Any

import pytest

from helpers.run_directories import change, write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_run, load_runs
from rlcb.analysis.machines import cores_used, efficiency, machine_of, nodes_of
from rlcb.analysis.records import Comparison
from rlcb.report.compare import compare_any, comparison_text
from rlcb.report.two_runs import compare_two

SIXTEEN = {"cpu": "Xeon", "usable_cores": 16, "logical_cores": 16}
TWO = {"cpu": "AMD EPYC", "usable_cores": 2, "logical_cores": 2}


def node(host: str, cores: float, workers: int, threads: int, driver: bool = False) -> dict[str, Any]:
    return {
        "node": f"{host} (0a1b2c)", "host": host, "cores": cores, "driver": driver, "workers": workers,
        "threads": threads, "peak_memory_gb": 0.5, "alive": True,
    }  # fmt: skip


THREE_NODES = [node("host-a", 2.0, 2, 2, driver=True), node("host-b", 2.0, 2, 2), node("host-c", 4.0, 1, 4)]


def compared(folder: Path) -> Comparison:
    return compare(load_runs([folder], lambda _: None))


@pytest.mark.parametrize(
    ("hardware", "workers", "learners", "threads", "expected"),
    [
        (TWO, 1, 0, 2, 2),  # sequential
        (TWO, 1, 0, 1, 1),
        (TWO, 4, 0, 1, 2),  # more processes than cores
        (SIXTEEN, 4, 0, 4, 16),  # data-parallel
        (SIXTEEN, 8, 8, 1, 16),  # actors with a thread each, and learners
        (SIXTEEN, 4, 2, 3, 10),
        ({**TWO, "nodes": THREE_NODES}, 5, 0, 1, 8),
        ({**TWO, "nodes": [node("host-a", 2.0, 0, 0, True), node("host-b", 8.0, 6, 6)]}, 6, 2, 1, 8),  # learners here
        ({**TWO, "nodes": [node("host-a", 2.0, 4, 4, True)]}, 4, 0, 1, 2),
        ({**TWO, "nodes": [node("vm", 2.0, 2, 2, True), node("vm", 2.0, 2, 2)]}, 4, 0, 1, 2),  # both on one machine
        (TWO, 2, None, 1, None),
        (TWO, 2, 0, None, None),
        ({}, 2, 0, 1, None),
        ({**TWO, "nodes": [{"node": "host-a (0a1b2c)", "cores": 2.0, "workers": 2}]}, 2, 0, 1, None),  # 0.1.0
    ],
)
def test_cores_that_a_run_uses(
    hardware: dict[str, Any], workers: int, learners: int | None, threads: int | None, expected: int | None
) -> None:
    assert cores_used(hardware, workers, learners, threads, nodes_of(hardware)) == expected


def test_efficiency_is_speedup_per_core() -> None:
    assert efficiency(2.12, 16, 16) == pytest.approx(2.12)  # 8 actors and 8 learners against 16 threads
    assert efficiency(3.32, 8, 2) == pytest.approx(0.83)
    assert efficiency(3.32, None, 2) is efficiency(3.32, 8, None) is None


def test_learners_count_as_cores(tmp_path: Path) -> None:
    more: dict[str, Any] = {"machine": SIXTEEN, "algorithm": "impala"}
    write_run(tmp_path / "s", threads=16, fps=1000.0, **more)
    write_run(tmp_path / "p", mode="parallel", workers=8, learners=8, threads=1, fps=2120.0, **more)
    parallel = compared(tmp_path).sets[0].groups[1]
    assert parallel.speedup is not None
    assert (parallel.speedup.cores, parallel.speedup.baseline_cores) == (16, 16)
    assert parallel.speedup.efficiency == pytest.approx(2.12, rel=0.02)
    assert " % (16 against 16; more than the cores explain)" in comparison_text(compared(tmp_path))


def test_learners_of_earlier_runs_are_in_their_configuration(tmp_path: Path) -> None:
    path = write_run(
        tmp_path / "p", mode="parallel", algorithm="impala", workers=4, threads=2, num_learners=2, machine=SIXTEEN
    )
    change(path, hardware={"num_learners": None})
    assert load_run(path).cores == 8
    content = load_run(path).config["parallel"]
    change(path, config={"parallel": {**content, "num_learners": None}})
    assert load_run(path).cores is None


def cluster_runs(folder: Path) -> Path:
    """Sequential runs on a machine of 2 cores and parallel ones on a cluster of 8 that it is a node of."""
    for seed in (1, 2):
        write_run(folder / f"s{seed}", seed=seed, threads=2, fps=1000.0 + seed, machine=TWO)
        more: dict[str, Any] = {"workers": 4, "threads": 1, "batch_size": 2048, "cluster": "auto"}
        path = write_run(folder / f"p{seed}", mode="parallel", seed=seed, fps=3320.0 + seed, machine=TWO, **more)
        change(path, hardware={"nodes": THREE_NODES})
    return folder


def test_a_cluster_is_its_nodes_and_its_speedup_is_over_the_machine_it_was_used_from(tmp_path: Path) -> None:
    comparison = compared(cluster_runs(tmp_path))
    alone, cluster = sorted(comparison.sets, key=lambda one: one.machine, reverse=True)
    assert alone.machine == "AMD EPYC, 2 cores"
    assert cluster.title.endswith("on 3 nodes: host-a 2 cores, host-b 2 cores, host-c 4 cores")
    speedup = cluster.groups[0].speedup
    assert speedup is not None
    assert (speedup.cores, speedup.baseline_cores) == (8, 2)
    assert speedup.value == pytest.approx(3.32, rel=0.02)
    assert speedup.efficiency == pytest.approx(0.83, rel=0.02)
    assert speedup.over == "PPO Sequential on AMD EPYC, 2 cores"
    assert cluster.pairs == alone.pairs == ()
    words = (
        " times as fast as PPO Sequential on AMD EPYC, 2 cores (8 cores against 2, 83 % per core); not the same work:"
    )
    assert words in cluster.verdict
    (table,) = comparison.machine_tables
    assert "minibatch 2,048 (PPO Parallel (4 workers) on 3 nodes: host-a" in table.unequal_work[0]
    assert "* not the same work: minibatch 2,048" in comparison_text(comparison)
    assert "not the same work as PPO Sequential on AMD EPYC, 2 cores: minibatch 2,048 / 1,024" in cluster.notes


def test_the_report_names_the_nodes(tmp_path: Path) -> None:
    assert compare_any([cluster_runs(tmp_path / "runs")], tmp_path / "out", None, 0) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    machine = text[text.index("## Machine\n") : text.index("## Settings")]
    assert "| Nodes | 3 nodes: host-a 2 cores, host-b 2 cores, host-c 4 cores | – |" in machine
    assert machine.count("2 runs") == 2  # seeds on the same nodes are one description
    assert "The same task on different machines" in text


def test_two_runs_of_which_one_is_on_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = cluster_runs(tmp_path / "runs")
    assert compare_two(str(runs / "s1"), str(runs / "p1"), None, tmp_path / "x.png") == 0
    for text in (capsys.readouterr().out, (tmp_path / "comparison_report.txt").read_text()):
        assert "Parallel Machine: 3 nodes: host-a 2 cores" in text
        assert "Different machines: shown side by side without a winner" in text
        assert "% (8 against 2)" in text
        assert "Speedup: over the machine that started the cluster run (AMD EPYC, 2 cores)" in text
        assert "Not the same work: minibatch 1,024 / 2,048" in text


def test_many_nodes_are_counted_and_ray_numbers_left_out() -> None:
    entries = [{"node": f"n{number:02d} (0a1b2c)", "cores": 2.0, "workers": 1} for number in range(20)]
    named = ", ".join(f"n{number:02d} 2 cores" for number in range(6))
    assert machine_of({**TWO, "nodes": entries}) == f"20 nodes: {named} and 14 more, 40 cores in total"
    assert machine_of({**TWO, "nodes": "nonsense"}) == "AMD EPYC, 2 cores"
    assert machine_of({"cpu": "A", "usable_cores": 1, "gpus": ["H200", "H200", 3]}) == "A, 1 core, 2 × H200"
    assert machine_of({"cpu": "A", "usable_cores": 1, "gpus": [], "gpu": "MI300"}) == "A, 1 core, MI300"


def test_different_machines_are_described_without_a_winner(tmp_path: Path) -> None:
    for seed in (1, 2):
        for name, machine, fps in (("small", TWO, 1000.0), ("large", SIXTEEN, 4000.0)):
            threads = machine["usable_cores"]
            write_run(tmp_path / f"{name}_s{seed}", seed=seed, machine=machine, threads=threads, fps=fps + seed)
            more: dict[str, Any] = {"mode": "parallel", "workers": 2, "threads": threads // 2, "fps": 1.5 * fps + seed}
            write_run(tmp_path / f"{name}_p{seed}", seed=seed, machine=machine, **more)
    comparison = compared(tmp_path)
    (table,) = comparison.machine_tables
    assert table.sets == (1, 2)
    text = comparison_text(comparison)
    described = text[text.index("The same task on different machines") :]
    for words in (
        "AMD EPYC, 2 cores\n",
        "Xeon, 16 cores\n",
        "PPO Parallel (2 workers) (2 seeds)",
        "speed-up 1.5",
        "PSS",
    ):
        assert words in described, words
    assert "No winner: differences in speed or memory may be due to the machines" in described.replace("\n", " ")
    assert "different machines are shown side by side, without a winner" in comparison.verdict
    for one in comparison.sets:  # each on its own machine
        assert one.groups[1].speedup is not None
        assert one.groups[1].speedup.value == pytest.approx(1.5, rel=0.02)
        assert {pair.winner for pair in one.pairs if pair.metric == "average_fps"} == {"PPO Parallel (2 workers)"}


def test_other_tasks_are_not_described_together(tmp_path: Path) -> None:
    write_run(tmp_path / "a", machine=TWO)
    write_run(tmp_path / "b", machine=SIXTEEN, name="procgen-starpilot-v0")
    write_run(tmp_path / "c", machine=SIXTEEN, status="running")
    assert compared(tmp_path).machine_tables == ()


def test_a_gpu_is_part_of_the_machine_and_its_memory_of_the_tables(tmp_path: Path) -> None:
    for seed in (1, 2):
        machine = {**SIXTEEN, "gpus": ["NVIDIA H200"], "gpu_driver": f"570.{seed}"}
        path = write_run(tmp_path / "runs" / f"{seed}", seed=seed, machine=machine)
        change(
            path,
            hardware={"device": "cuda"},
            resource_usage={"peak_gpu_memory_gb": 2.5, "peak_gpu_tensors_gb": 2.0, "gpu_percent": 87.0},
        )
    write_run(tmp_path / "runs" / "cpu", seed=1, machine={**machine, "gpu_driver": "570.2"})
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    text = (tmp_path / "out" / "comparison_report.txt").read_text()
    assert "on Xeon, 16 cores, NVIDIA H200" in text.replace("\n", " ")
    assert "Peak GPU memory (GB)" in text
    assert re.search(r"^GPU busy \(%\) +n/a +87", text, re.MULTILINE)
    assert "* GPU busy: share of time" in text
    assert "GPU driver 570.1" in text  # versions differ
    page = (tmp_path / "out" / "report.html").read_text()
    assert "NVIDIA H200, driver 570.1" in page
    assert "Peak GPU memory (GB)" in page
    assert "GPU busy (%)" in page
