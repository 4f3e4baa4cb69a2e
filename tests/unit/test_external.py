"""Logs of other programs: each format read as it is, faults said in one line, what is unknown left unknown."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from helpers.processes import ROOT
from rlcb.analysis.comparison import compare
from rlcb.analysis.external.convert import convert, load_imported, run_of
from rlcb.analysis.external.find import source_at
from rlcb.analysis.external.labels import Labels
from rlcb.analysis.external.log import MOST_ROWS
from rlcb.analysis.external.mapping import read_mapping
from rlcb.analysis.external.tfevents import Events, masked_checksum, read_events
from rlcb.analysis.run import Run
from rlcb.errors import UsageError
from rlcb.report.compare import Question, compare_runs

LOGS = ROOT / "tests" / "fixtures" / "external"
CLEANRL = LOGS / "cleanrl" / "CartPole-v1__ppo__1__1794860433" / "events.out.tfevents.1794860433.host.1.0"
RLLIB = LOGS / "rllib" / "PPO_CartPole-v1_49a42_00000"


def read(path: Path, **labels: object) -> Run:
    source = source_at(path)
    assert source
    return run_of(path, *convert(source, Labels(**labels)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "label", "seed", "steps", "episodes"),
    [
        ("sb3/ppo_CartPole-v1_seed1", "SB3 PPO (external)", 1, 20184, 156),
        ("sb3/ppo_coinrun_seed2", "SB3 PPO (external)", 2, 29477, 100),
        ("sb3_tensorboard/PPO_CartPole-v1_s1_1", "SB3 PPO (external)", 1, 14336, None),
        ("cleanrl/CartPole-v1__ppo__1__1794860433", "CleanRL PPO (external)", 1, 2456, 93),
        ("sample_factory/.summary/0", "Sample Factory APPO (external)", 1, 11264, None),
        ("rllib/PPO_CartPole-v1_49a42_00000", "RLlib PPO (external)", 1, 3003, None),
        ("rllib/PPO_CartPole-v1_49a42_00000/progress.csv", "RLlib PPO (external)", 1, 3003, None),
        ("rllib_events/PPO_CartPole-v1", "RLlib PPO (external)", None, 2002, None),
    ],
)
def test_real_logs(path: str, label: str, seed: int | None, steps: int, episodes: int | None) -> None:
    run = read(LOGS / path)
    assert (run.label, run.seed, run.metrics.total_timesteps, run.metrics.num_episodes) == (
        label,
        seed,
        steps,
        episodes,
    )
    assert run.game == ("coinrun" if "coinrun" in path else "CartPole-v1")
    assert run.external
    assert run.external.same_rewards is (episodes is not None)
    assert {"machine", "disturbance", "memory", "settings", "budget"} <= set(run.external.unknown)
    assert ("levels" in run.external.unknown) is (run.game == "coinrun")
    assert run.hardware == {}
    assert run.disturbance.disturbed is None
    assert run.metrics.peak_memory_gb is run.metrics.final_fps is run.metrics.initial_reward is None
    assert np.all(np.diff(run.history.step) > 0)
    assert np.all(np.diff(run.history.time) >= 0)
    assert all(len(source.sha256) == 64 for source in run.external.sources)


def test_a_log_without_a_reward_does_not_limit_equal_steps() -> None:
    long, short = read(LOGS / "sb3" / "ppo_CartPole-v1_seed1"), read(CLEANRL.parent)
    (one,) = compare([long, short]).sets
    assert (one.equal_steps, short.compared_reward) == (20184, None)
    few = "CleanRL PPO (external): 1 of 1 run finished fewer than 100 episodes, so it has no reward"
    assert any(note.startswith(few) for note in one.notes)
    assert not any("ended at" in note for note in one.notes)


def test_episodes_become_the_mean_of_the_last_hundred_in_the_order_in_which_they_ended() -> None:
    episodes = []
    for name in ("0.monitor.csv", "1.monitor.csv"):
        lines = (LOGS / "sb3" / "ppo_CartPole-v1_seed1" / name).read_text().splitlines()
        start = json.loads(lines[0][1:])["t_start"]
        episodes += [(start + float(row["t"]), float(row["r"]), int(row["l"])) for row in csv.DictReader(lines[1:])]
    episodes.sort()
    run = read(LOGS / "sb3" / "ppo_CartPole-v1_seed1")
    for index in (0, 50, 99, 100, len(episodes) - 1):
        window = [reward for _, reward, _ in episodes[max(index - 99, 0) : index + 1]]
        assert run.history.reward[index] == pytest.approx(np.mean(window))
        assert run.history.reward_std[index] == pytest.approx(np.std(window))
        assert run.history.step[index] == sum(length for _, _, length in episodes[: index + 1])
        assert run.history.episodes[index] == index + 1


def test_events_are_read_as_tensorboard_wrote_them(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step in (0, 5, 2**40):
            writer.add_scalar("charts/episodic_return", step / 3, step, walltime=1000.0 + step / 2**38)
            writer.add_scalar("new/style", step / 7, step, new_style=True)
        writer.add_histogram("weights", np.arange(100_000.0), 1)
        writer.add_text("hyperparameters", "|param|value|\n|-|-|\n|env_id|CartPole-v1|\n|seed|7|\n|exp_name|ppo|")
    events = Events()
    read_events(next(tmp_path.iterdir()), events)
    assert events.problems == []
    found = events.scalars["charts/episodic_return"]
    assert list(found.step) == [0, 5, 2**40]
    assert list(found.value) == pytest.approx([0, 5 / 3, 2**40 / 3])
    assert list(found.time) == pytest.approx([1000.0 + step / 2**38 for step in (0, 5, 2**40)])
    assert list(events.scalars["new/style"].value) == pytest.approx([0, 5 / 7, 2**40 / 7])
    run = read(tmp_path)
    assert (run.label, run.game, run.seed) == ("CleanRL PPO (external)", "CartPole-v1", 7)


def test_the_checksum_is_castagnolis() -> None:
    assert masked_checksum(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_damaged_events_are_said_and_never_raise_anything_else(tmp_path: Path) -> None:
    whole, file = CLEANRL.read_bytes(), tmp_path / CLEANRL.name
    pick = random.Random(1)
    for _ in range(150):
        data = bytearray(whole[: pick.randrange(len(whole))] if pick.random() < 0.5 else whole)
        for _ in range(pick.randrange(3)):
            if data:
                data[pick.randrange(len(data))] ^= 1 << pick.randrange(8)
        file.write_bytes(bytes(data))
        events = Events()
        try:
            read_events(file, events)
        except UsageError as error:
            assert str(file) in str(error)  # noqa: PT017
    file.write_bytes(whole[:-5])
    events = Events()
    read_events(file, events)
    assert events.problems == [f"{file.name}: its last record is incomplete and ignored (still being written?)"]


def test_lines_that_are_still_being_written_are_left_out(tmp_path: Path) -> None:
    monitor = tmp_path / "ppo_CartPole-v1" / "monitor.csv"
    monitor.parent.mkdir()
    monitor.write_text('#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n10.0,10,0.1\nx,y,z\n12.0,12,0.2\n13.0,1')
    run = read(monitor.parent)
    assert list(run.history.step) == [10, 22]
    assert run.problems == (
        "monitor.csv: its last line is incomplete and ignored (still being written?)",
        "monitor.csv: 1 unreadable line ignored",
    )
    for name in ("result.json", "progress.csv"):
        (tmp_path / "params.json").write_text((RLLIB / "params.json").read_text())
        (tmp_path / name).write_text((RLLIB / name).read_text()[:-20])
        run = read(tmp_path / name)
        assert run.metrics.total_timesteps == 2002
        assert "incomplete" in run.problems[0]


def test_monitor_files_may_count_the_steps_of_all_environments(tmp_path: Path) -> None:
    """Those of finished episodes are fewer; files of several processes are joined by time."""
    folder = tmp_path / "ppo_coinrun"
    folder.mkdir()
    head = '#{"t_start": 1.0, "env_id": "coinrun"}\nr,l,t,env_steps\n'
    (folder / "1.monitor.csv").write_text(f"{head}10.0,10,0.1,20\n0.0,12,0.3,44\n")
    (folder / "2.monitor.csv").write_text(f"{head}10.0,11,0.2,22\n0.0,10,0.4,42\n")
    run = read(folder)
    assert list(run.history.step) == [20, 20 + 22, 44 + 22, 44 + 42]
    assert list(run.history.reward) == pytest.approx([10.0, 10.0, 20 / 3, 5.0])
    (folder / "2.monitor.csv").write_text('#{"t_start": 1.0}\nr,l,t\n10.0,11,0.2\n')
    assert list(read(folder).history.step) == [10, 21, 33]  # not all of them count: finished episodes


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("monitor.csv", "", "is empty"),
        ("monitor.csv", "r,l,t\n1,2,3\n", "line 1 is not"),
        ("monitor.csv", '#{"t_start": 1}\na,b\n1,2\n', "no column r; expected r,l,t"),
        ("monitor.csv", '#{"t_start": 1}\nr,l,t\n', "contains no finished episode yet"),
        ("events.out.tfevents.1.x", "", "is empty"),
        ("events.out.tfevents.1.x", "not a record, but text of some length", "its first record has a wrong checksum"),
        ("progress.csv", "", "is empty"),
        ("progress.csv", "a,b\n1,2\n", "no reward of RLlib or Stable-Baselines3 found"),
        ("progress.csv", "a,b\n", "contains no iteration yet"),
        ("result.json", "[" * 100_000 + "\n", "contains no iteration yet"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError) as caught:
        read(tmp_path / name, game="CartPole-v1")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_huge_files_are_refused_or_cut(tmp_path: Path) -> None:
    monitor = tmp_path / "monitor.csv"
    with monitor.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UsageError, match="larger than 256 MB"):
        read(monitor)
    rows = "".join(f"1.0,2,{index / 1000}\n" for index in range(30_000))
    monitor.write_text('#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n' + rows)
    run = read(monitor)
    assert len(run.history) == MOST_ROWS
    assert (run.metrics.total_timesteps, run.metrics.num_episodes) == (60_000, 30_000)


def test_a_mapping_names_tags_or_columns(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "CartPole-v1_seed3")) as writer:
        for step in range(1, 6):
            writer.add_scalar("train/return", 10.0 * step, step)
            writer.add_scalar("train/frames", 4.0 * step, step)
    file = tmp_path / "tags.yaml"
    file.write_text("program: Mine\nreward: train/return\nrewards: averages\nwindow: 100\nstep: train/frames\n")
    source = source_at(tmp_path / "CartPole-v1_seed3")
    assert source
    with pytest.raises(UsageError, match=r"--mapping FILE; it has train/frames, train/return$"):
        convert(source, Labels())
    run = run_of(source.path, *convert(source, Labels(), read_mapping(file)))
    assert run.label == "Mine (external)"
    assert list(run.history.step) == [4, 8, 12, 16, 20]
    assert run.external
    assert run.external.same_rewards
    file.write_text("reward: train/other\nrewards: episodes\n")
    with pytest.raises(UsageError, match="has no train/other, which the mapping refers to"):
        convert(source, Labels(), read_mapping(file))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rewards: episodes\n", "the key reward is missing"),
        ("reward: a\n", "rewards: missing; valid: episodes"),
        ("reward: a\nrewards: some\n", "rewards: some; valid"),
        ("reward: a\nrewards: episodes\nwindow: 100\n", "window: must be the number of episodes per average"),
        ("reward: a\nrewards: averages\nwindow: 0\n", "window"),
        ("reward: 1\nrewards: averages\n", "reward: expected text"),
        ("reward: a\nlenght: b\n", "unknown key lenght; valid: program"),
    ],
)
def test_faults_of_a_mapping(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "tags.yaml").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_mapping(tmp_path / "tags.yaml")


def test_time_and_environment_that_are_not_in_the_files_stay_unknown(tmp_path: Path) -> None:
    table = tmp_path / "progress.csv"
    table.write_text("timesteps_total,episode_reward_mean\n100,1.5\n200,2.5\n")
    with pytest.raises(UsageError, match=r"the files do not name the environment.*--game NAME"):
        read(table)
    run = read(table, game="coinrun", distribution_mode="easy", num_levels=200)
    assert run.external
    assert "time" in run.external.unknown
    assert "levels" not in run.external.unknown
    assert (run.metrics.duration_hours, run.metrics.average_fps, run.seed) == (None, None, None)
    assert run.task.levels == "200 easy levels"


def test_a_log_without_times_reaches_a_threshold_at_an_unknown_time(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = tmp_path / "logs" / f"ppo_CartPole-v1_seed{seed}"
        folder.mkdir(parents=True)
        rows = [f"{1000 * update},{20 + update + seed}" for update in range(1, 51)]
        (folder / "progress.csv").write_text("\n".join(["time/total_timesteps,rollout/ep_rew_mean", *rows]) + "\n")
    for levels in ([30.0], [30.0, 40.0]):
        compare_runs(Question([tmp_path / "logs"], levels), tmp_path / "out", lambda _: None)
        content = json.loads((tmp_path / "out" / "comparison.json").read_text())
        metrics = content["sets"][0]["groups"][0]["metrics"]
        assert metrics["hours_to_reward"]["values"] == []
        assert metrics["hours_to_reward"]["missing"] == 2
        assert metrics["duration_hours"]["values"] == []
        text = (tmp_path / "out" / "comparison_report.txt").read_text()
        assert "nan" not in text.lower()
    assert "time unknown" in text
    assert "8,500 steps" in text  # the mean of 9,000 and 8,000
    assert "nan" not in (tmp_path / "out" / "report.md").read_text().lower()


def test_a_damaged_or_hostile_import_is_one_line(tmp_path: Path) -> None:
    mark = tmp_path / "external.json"
    for content in ("", "[]", "{}", '{"schema": 2, "game": "CartPole-v1"}', '{"schema": 1, "game": 5}'):
        mark.write_text(content)
        with pytest.raises(UsageError) as caught:
            load_imported(tmp_path)
        assert str(tmp_path) in str(caught.value)
    mark.write_text(json.dumps({"schema": 1, "game": "CartPole-v1", "name": "a\x1bb", "sources": [1, {"path": 5}]}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "rollout/ep_reward_mean": 1.0}\n')
    assert load_imported(tmp_path).label == "a?b (external)"
