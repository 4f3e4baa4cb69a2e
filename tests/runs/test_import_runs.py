"""`rlcb import`, and other programs' runs in comparisons with ours."""

import json
import os
import shutil
from pathlib import Path

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT, python, rlcb
from helpers.run_directories import write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.records import Comparison

LOGS = ROOT / "tests" / "fixtures" / "external"
SB3 = LOGS / "sb3" / "ppo_CartPole-v1_seed1"
CLEANRL = LOGS / "cleanrl"


def comparison_of(*paths: Path) -> tuple[Comparison, list[str]]:
    said: list[str] = []
    return compare(load_runs(paths, said.append)), said


def own_runs(folder: Path, seeds: int = 3, **settings: object) -> Path:
    for seed in range(1, seeds + 1):
        write_run(folder / f"seed_{seed}", seed=seed, rewards=(20.0, 60.0), **settings)  # type: ignore[arg-type]
    return folder


def several_seeds(folder: Path, seeds: int = 3) -> Path:
    """A log of Stable-Baselines3 for each seed, whose rewards differ."""
    for seed in range(1, seeds + 1):
        path = folder / f"ppo_CartPole-v1_seed{seed}"
        shutil.copytree(SB3, path)
        for file in path.iterdir():
            head, names, *rows = file.read_text().splitlines()
            rows = [f"{float(row.split(',')[0]) + seed},{row.split(',', 1)[1]}" for row in rows]
            file.write_text("\n".join([head, names, *rows]) + "\n")
    return folder


def test_a_process_imports_and_the_directory_says_where_it_comes_from(tmp_path: Path) -> None:
    done = rlcb("import", SB3, CLEANRL, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "guessed: algorithm ppo (from names of folders), game CartPole-v1 (from its files), seed 1" in done.stdout
    assert "unknown: machine, disturbance, memory, settings, budget" in done.stdout
    folder = tmp_path / "out" / "CartPole-v1" / "SB3_PPO" / "seed_1"
    record = json.loads((folder / "external.json").read_text())
    assert [source["path"] for source in record["sources"]] == [str(SB3 / f"{n}.monitor.csv") for n in (0, 1)]
    assert all(source["bytes"] == Path(source["path"]).stat().st_size for source in record["sources"])
    assert record["mapping"]["reward"] == "r"
    assert record["rewards"] == "mean of the last 100 episodes, from the reward of each episode"
    direct, imported = (load_runs([path], lambda _: None)[0] for path in (SB3, folder))
    assert direct.metrics == imported.metrics
    assert list(direct.history.reward) == list(imported.history.reward)


def test_an_import_of_the_same_files_is_replaced_and_any_other_kept(tmp_path: Path) -> None:
    logs = several_seeds(tmp_path / "logs", 1)
    place = tmp_path / "out" / "CartPole-v1" / "SB3_PPO"
    for _ in range(2):
        assert rlcb_here("import", logs, "--output", tmp_path / "out").returncode == 0
    assert os.listdir(place) == ["seed_1"]
    assert rlcb_here("import", SB3, "--output", tmp_path / "out").returncode == 0
    assert sorted(os.listdir(place)) == ["seed_1", "seed_1_2"]
    done = rlcb_here("import", SB3, "--output", tmp_path / "out", "--name", "Old code", "--seed", "9", "--game", "x-v0")
    assert "Old code (external), x-v0, seed 9" in done.stdout
    assert "guessed: algorithm ppo (from names of folders)\n" in done.stdout
    assert (tmp_path / "out" / "x-v0" / "Old_code" / "seed_9" / "external.json").is_file()


def test_rewards_at_equal_steps_are_judged_and_nothing_that_needs_the_machine_or_the_budget(tmp_path: Path) -> None:
    ours = own_runs(tmp_path / "ours", name="CartPole-v1", updates=12, num_envs=16, n_steps=64)
    comparison, said = comparison_of(ours, several_seeds(tmp_path / "logs"))
    assert any("external run SB3 PPO: guessed algorithm ppo" in line for line in said)
    (one,) = comparison.sets
    own, theirs = one.groups
    assert (own.label, theirs.label) == ("PPO Sequential", "SB3 PPO (external)")
    verdicts = {pair.metric: pair.verdict for pair in one.pairs}
    assert verdicts["average_fps"] == "n/a (SB3 PPO (external): machine unknown)"
    assert verdicts["reward_at_equal_time"] == "n/a (SB3 PPO (external): machine unknown)"
    assert verdicts["final_reward"] == "n/a (SB3 PPO (external): budget unknown)"
    judged = one.pair("reward_at_equal_steps", own.label, theirs.label)
    assert judged
    assert judged.interval
    assert "SB3 PPO (external): shown beside these, not judged by speed (machine unknown)" in comparison.verdict
    assert any(
        note.startswith("SB3 PPO (external): from monitor.csv of Stable-Baselines3; rewards: mean of")
        for note in one.notes
    )
    alone, _ = comparison_of(ours)
    for name in ("threshold", "equal_hours"):
        assert getattr(one, name) == getattr(alone.sets[0], name)
    assert own.metrics["final_reward"] == alone.sets[0].groups[0].metrics["final_reward"]
    record = comparison.to_dict()["sets"][0]["groups"]
    assert record[0]["external"] is None
    assert record[1]["external"]["program"] == "Stable-Baselines3"


def test_averages_and_unknown_levels_are_not_judged(tmp_path: Path) -> None:
    ours = own_runs(tmp_path / "ours", name="coinrun")
    for seed in (1, 2):
        shutil.copytree(LOGS / "sb3" / "ppo_coinrun_seed2", tmp_path / "logs" / f"ppo_coinrun_seed{seed}")
    unknown, _ = comparison_of(ours, tmp_path / "logs")
    (one,) = unknown.sets
    pair = one.pair("reward_at_equal_steps", *(group.label for group in one.groups))
    assert pair
    assert pair.verdict == "n/a (SB3 PPO (external): levels unknown)"
    known = ("--distribution-mode", "easy", "--num-levels", "200", "--start-level", "0")
    assert rlcb_here("import", tmp_path / "logs", *known, "--output", tmp_path / "out").returncode == 0
    (one,) = comparison_of(ours, tmp_path / "out")[0].sets
    pair = one.pair("reward_at_equal_steps", *(group.label for group in one.groups))
    assert pair
    assert "levels" not in pair.verdict
    other = ("--distribution-mode", "hard", "--num-levels", "500")
    assert rlcb_here("import", tmp_path / "logs", *other, "--output", tmp_path / "hard").returncode == 0
    assert len(comparison_of(ours, tmp_path / "hard")[0].sets) == 2
    cartpole = own_runs(tmp_path / "cartpole", name="CartPole-v1")
    (one,) = comparison_of(cartpole, LOGS / "rllib")[0].sets
    pair = one.pair("reward_at_equal_steps", *(group.label for group in one.groups))
    assert pair
    assert "rewards averaged over an unknown number of episodes" in pair.verdict


def test_compare_reads_logs_directly_and_marks_them_everywhere(tmp_path: Path) -> None:
    ours = own_runs(tmp_path / "ours", name="CartPole-v1")
    done = rlcb_here("compare", ours, LOGS, "--output", tmp_path / "report")
    assert done.returncode == 0, done.stderr
    names = ("SB3 PPO", "CleanRL PPO", "RLlib PPO", "Sample Factory APPO")
    for text in (done.stdout, *((tmp_path / "report" / f"report.{end}").read_text() for end in ("html", "md"))):
        plain = text.replace("\\", "").replace("\n", " ")
        assert all(f"{name} (external)" in " ".join(plain.split()) for name in names)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "machine unknown" in page
    assert all(f">{name}<" not in page for name in names)


def test_our_own_runs_and_imported_ones_are_not_imported_again(tmp_path: Path) -> None:
    ours = own_runs(tmp_path / "ours", 1, name="CartPole-v1")
    rlcb_here("import", ours).assert_one_line_error(2, "is a run of rlcb: pass it to rlcb compare")
    rlcb_here("import", SB3, "--output", tmp_path / "out")
    rlcb_here("import", tmp_path / "out").assert_one_line_error(2, "is already imported")
    inside = ours / "seed_1" / "external"
    rlcb_here("import", SB3, "--output", inside).assert_one_line_error(2, "is inside the run")
    assert "contains no run" in rlcb_here("status", tmp_path / "out").stderr


def test_the_comparison_of_a_sequential_and_a_parallel_run_takes_only_ours(tmp_path: Path) -> None:
    shutil.copytree(SB3, tmp_path / "runs" / SB3.name)
    newest = ("--newest", str(tmp_path / "runs"), "--output", str(tmp_path / "two.png"))
    done = python("compare_results.py", *newest)
    assert done.returncode == 2
    assert "contains only runs of other programs" in done.stderr
    own_runs(tmp_path / "runs" / "ours", 1, name="CartPole-v1")
    done = python("compare_results.py", *newest)
    assert done.returncode == 0, done.stderr
    assert "external" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "no such file or directory; expected monitor.csv"),
        ((str(ROOT / "README.md"),), "nothing to import: expected monitor.csv"),
        ((str(LOGS), "--seed", "1"), "runs are given; import them one at a time"),
        ((str(SB3), "--mapping", str(ROOT / "README.md")), "README.md"),
        ((str(SB3), "--num-levels", "200"), "--distribution-mode and --num-levels must be given together"),
        ((str(SB3), "--name", ""), "printable characters"),
        ((str(SB3), "--format", "tensorboard"), "nothing to import"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = rlcb_here("import", *arguments, "--output", tmp_path / "out")
    done.assert_one_line_error(2, words)
    assert not (tmp_path / "out").exists()


def test_a_log_that_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "monitor.csv")
    done = rlcb("import", tmp_path, "--output", tmp_path / "out", timeout=60)
    done.assert_one_line_error(2, "a named pipe, not a regular file")
