"""Whether runs do the same work, and what is said where they do not; settings and lengths in the tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.run_directories import change, write_evaluation, write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_run, load_runs
from rlcb.analysis.records import Comparison
from rlcb.analysis.work import work_differences
from rlcb.report.compare import compare_any, comparison_text
from rlcb.report.two_runs import compare_two

PARALLEL: dict[str, Any] = {"mode": "parallel", "workers": 4, "threads": 2, "fps": 2100.0}


def compared(folder: Path) -> Comparison:
    return compare(load_runs([folder], lambda _: None))


def test_two_runs_say_where_their_work_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "s")
    write_run(tmp_path / "p", batch_size=2048, **PARALLEL)
    assert compare_two(str(tmp_path / "s"), str(tmp_path / "p"), None, tmp_path / "out" / "x.png") == 0
    for text in (capsys.readouterr().out, (tmp_path / "out" / "comparison_report.txt").read_text()):
        assert "Not the same work: minibatch 1,024 / 2,048" in text
        assert "2.1" in text  # the speed-up is given all the same


def test_a_comparison_says_it_too(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"s{seed}", seed=seed)
        write_run(tmp_path / f"p{seed}", seed=seed, batch_size=2048, **PARALLEL)
    (one,) = compared(tmp_path).sets
    assert "not the same work: minibatch 1,024 (PPO Sequential) / 2,048 (PPO Parallel (4 workers))" in one.notes
    assert "Not the same work (PPO Sequential / PPO Parallel (4 workers)): minibatch 1,024 / 2,048." in one.verdict


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({}, PARALLEL, ""),  # workers, threads, cluster and timeouts are no work
        ({}, {**PARALLEL, "worker_timeout": 5.0, "cluster": "auto", "min_workers": 2}, ""),
        ({}, {"micro_batch_size": 256}, ""),  # the same gradient in parts
        ({"batch_size": 4096}, {"batch_size": 100_000}, ""),  # both are the whole rollout
        ({"network": "auto"}, {"network": "nature"}, ""),
        ({"adam_eps": 1e-5}, {"rms_eps": 0.1}, ""),  # of the optimizer that is not used
        ({}, {"reward_norm_gamma": 0.99}, ""),
        ({}, {"seed": 7}, ""),
        ({}, {"n_epochs": 2, "num_envs": 64}, "environments 32 / 64, epochs 4 / 2"),
        ({}, {"network": "impala"}, "network nature / impala"),
        ({}, {"learning_rate": 1e-3, "clip_value": True}, "learning_rate 0.0003 / 0.001, clip_value off / on"),
        ({}, {"optimizer": "rmsprop", "rms_eps": 0.1}, "optimizer adam / rmsprop"),
        ({}, {"algorithm": "a2c"}, "minibatch 1,024 / 4,096, epochs 4 / 1"),
        (
            {"algorithm": "a2c"}, {"algorithm": "a3c", "mode": "parallel", "workers": 4},
            "minibatch 4,096 / 1,024",
        ),
    ],
)  # fmt: skip
def test_what_is_work_and_what_is_not(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], expected: str
) -> None:
    first, second = write_run(tmp_path / "a", **one), write_run(tmp_path / "b", **other)
    found = work_differences(load_run(first), load_run(second))
    assert found == expected if "optimizer" not in other else found.startswith(expected)


def test_precision_is_work_and_tells_groups_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    path = write_run(tmp_path / "b")
    config = json.loads((path / "benchmark_metrics.json").read_text())["config"]
    change(path, config={"hardware": {**config["hardware"], "precision": "bf16"}})
    assert work_differences(load_run(tmp_path / "a"), load_run(path)) == "precision fp32 / bf16"
    labels = {group.label for group in compared(tmp_path).sets[0].groups}
    assert labels == {"PPO Sequential, precision fp32", "PPO Sequential, precision bf16"}


def test_keys_without_meaning_are_not_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "s")
    write_run(tmp_path / "runs" / "p", **PARALLEL)
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    for name in ("report.html", "report.md", "comparison_report.txt"):
        text = (tmp_path / "out" / name).read_text()
        shown = [
            word
            for word in ("cluster", "min_workers", r"min\_workers", "insecure")
            if word in text.split("How to read")[0]
        ]
        assert shown == [], name
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert "cluster" not in content["sets"][0]["groups"][1]["settings"]


def test_episode_lengths_are_shown_beside_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for mode, more in (("s", {}), ("p", PARALLEL)):
        path = write_run(tmp_path / "runs" / mode, **more)
        write_evaluation(path, 7.0, 6.0)
    change(tmp_path / "runs" / "p", performance={"final_episode_length": 180.0})
    assert compare_any([tmp_path / "runs"], tmp_path / "out", None, 0) == 0
    text = (tmp_path / "out" / "comparison_report.txt").read_text()
    row = next(line for line in text.splitlines() if line.startswith("Episode length (steps)"))
    assert row.split()[-2:] == ["250", "180"]
    assert "Evaluated length, unseen    200" in text
    page = (tmp_path / "out" / "report.html").read_text()
    for title in ("Episode length", "Episode length, unseen levels"):
        assert f">{title}</th>" in page
    capsys.readouterr()
    runs = tmp_path / "runs"
    assert compare_two(str(runs / "s"), str(runs / "p"), None, tmp_path / "x.png") == 0
    assert "Episode Length: 250 / 180 steps" in capsys.readouterr().out


def test_the_length_of_an_earlier_run_comes_from_its_log(tmp_path: Path) -> None:
    path = write_run(tmp_path / "s")
    change(path, performance={"final_episode_length": None})
    assert load_run(path).metrics.final_episode_length == 250.0


def test_memory_is_named_with_its_measure(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"s{seed}", seed=seed)
        write_run(tmp_path / f"p{seed}", seed=seed, **PARALLEL)
    text = comparison_text(compared(tmp_path))
    assert "Peak memory (GB, PSS)" in text
    assert "* memory is PSS: pages shared by several processes are divided among them" in text
    for seed in (1, 2):
        change(tmp_path / f"p{seed}", resource_usage={"memory_measure": "rss"})
    comparison = compared(tmp_path)
    assert "memory was measured in different ways and cannot be compared" in " ".join(comparison.sets[0].notes)
    assert "PSS (PPO Sequential), RSS (PPO Parallel (4 workers))" in " ".join(comparison.sets[0].notes)
    assert "Peak memory (GB)  " in comparison_text(comparison)
    change(tmp_path / "s2", resource_usage={"memory_measure": None})  # two seeds that cannot be averaged
    sequential = compared(tmp_path).sets[0].groups[0]
    assert (sequential.metrics["peak_memory_gb"].n, sequential.metrics["peak_memory_gb"].mean) == (0, None)
    alone = compared(tmp_path / "s2")
    assert "the memory measure is not recorded; earlier versions measured RSS" in comparison_text(alone)
