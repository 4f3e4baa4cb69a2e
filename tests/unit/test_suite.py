"""Suites: what is planned, what is refused, what is shown."""

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb.commands.requests import suite_request
from rlcb.commands.training import benchmark_parser
from rlcb.config.registry import ALGORITHMS, Kind
from rlcb.console import clock
from rlcb.envs.families import GAMES
from rlcb.errors import ResourceError, UsageError
from rlcb.flags import parameter_of
from rlcb.run.request import new_config
from rlcb.suite.directory import check_room, runs_of, store, stored
from rlcb.suite.display import Display
from rlcb.suite.evaluation import is_evaluated
from rlcb.suite.extension import continued
from rlcb.suite.schema import SuiteConfig
from rlcb.suite.settings import build_suite


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def flags(**values: Any) -> dict[str, tuple[str, Any]]:
    return {key: (f"--{key}", value) for key, value in values.items()}


# --- what is planned


def test_seeds_are_interleaved_so_that_every_mode_meets_the_same_machine() -> None:
    suite = build_suite(None, flags(seeds=[3, 1], games=["procgen-coinrun-v0", "CartPole-v1"], total_timesteps=8192))
    runs = runs_of(suite.settings, Path("out"))
    assert [run.name for run in runs] == [
        "ppo sequential coinrun seed 3",
        "ppo parallel coinrun seed 3",
        "ppo sequential CartPole-v1 seed 3",
        "ppo parallel CartPole-v1 seed 3",
        "ppo sequential coinrun seed 1",
        "ppo parallel coinrun seed 1",
        "ppo sequential CartPole-v1 seed 1",
        "ppo parallel CartPole-v1 seed 1",
    ]
    assert runs[1].path == Path("out/coinrun/ppo_parallel/seed_3")
    assert runs[1].log == Path("out/coinrun/ppo_parallel/seed_3.log")
    assert len({run.path for run in runs}) == 8


def test_a_mode_that_an_algorithm_lacks_is_left_out_for_that_one() -> None:
    assert SuiteConfig(algorithms=["a2c", "a3c"]).kinds == [
        Kind("a2c", "sequential"),
        Kind("a2c", "parallel"),
        Kind("a3c", "parallel"),
    ]


def test_a_suite_of_all_algorithms_runs_each_in_the_modes_it_has() -> None:
    suite = build_suite(None, flags(algorithms=list(ALGORITHMS), duration_hours=1, num_envs=16, batch_size=512))
    kinds = [Kind(algorithm, mode) for algorithm, entry in ALGORITHMS.items() for mode in entry.modes]
    assert list(suite.configs) == kinds
    assert all(config.env.num_envs == 16 for config in suite.configs.values())
    assert suite.configs[Kind("ppo", "sequential")].minibatch_size == 512
    assert (
        suite.configs[Kind("a2c", "sequential")].minibatch_size
        == 16 * suite.configs[Kind("a2c", "sequential")].training.n_steps
    )


def test_num_envs_is_the_total_in_either_mode() -> None:
    suite = build_suite(None, flags(num_envs=16, num_workers=2, batch_size=512, total_timesteps=1e5))
    for config in suite.configs.values():
        assert config.env.num_envs == 16
        assert config.training.total_timesteps == 100_000
    assert suite.configs[Kind("ppo", "parallel")].parallel.num_envs_per_worker == 8
    divided = build_suite(None, flags(num_envs_per_worker=4, num_workers=2, batch_size=512, duration_hours=1))
    assert divided.configs[Kind("ppo", "parallel")].env.num_envs == 8


def test_flags_stand_above_the_file(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text("seeds: 7\nduration_hours: 2\noverrides: {n_steps: 64, gamma: 0.9}\n")
    suite = build_suite(file, flags(total_timesteps=50_000, gamma=0.5))
    assert suite.settings.seeds == [7]
    assert suite.settings.duration_hours is None
    assert suite.settings.overrides == {"n_steps": 64, "gamma": 0.5}
    training = suite.configs[Kind("ppo", "sequential")].training
    assert (training.duration_hours, training.total_timesteps, training.n_steps) == (None, 50_000, 64)


def test_a_config_file_for_one_kind_of_run(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("training: {n_steps: 16}\nlogging: {log_dir: elsewhere}\n")
    file = tmp_path / "suite.yaml"
    file.write_text(f"duration_hours: 1\nconfig:\n  ppo_sequential: {tmp_path / 'mine.yaml'}\n")
    configs = build_suite(file, {}).configs
    assert configs[Kind("ppo", "sequential")].training.n_steps == 16
    assert configs[Kind("ppo", "sequential")].logging.log_dir is None
    assert configs[Kind("ppo", "parallel")].training.n_steps == 128


def test_an_override_goes_to_the_algorithms_that_have_the_key(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(
        "algorithms: [ppo, impala]\nduration_hours: 1\noverrides: {num_envs: 16, clip_range: 0.1, num_slots: 9}\n"
    )
    suite = build_suite(file, flags(ent_coef=0.03, backend="gloo"))
    labels = ["ppo_sequential", "ppo_parallel", "impala_sequential", "impala_parallel"]
    assert [kind.label for kind in suite.configs] == labels
    for kind, config in suite.configs.items():
        assert config.algorithm == kind.algorithm
        assert (config.env.num_envs, config.objective.ent_coef) == (16, 0.03)
    assert suite.configs[Kind("ppo", "parallel")].ppo.clip_range == 0.1
    assert suite.configs[Kind("ppo", "parallel")].parallel.backend == "gloo"
    assert suite.configs[Kind("impala", "parallel")].parallel.num_slots == 9
    assert suite.configs[Kind("ppo", "parallel")].parallel.num_slots is None
    store(tmp_path, suite)
    assert stored(tmp_path) == suite


@pytest.mark.parametrize(("name", "runs"), [("quick", 6), ("ppo", 6), ("all", 21)])
def test_the_shipped_suites_load_and_give_both_modes_the_same_work(name: str, runs: int) -> None:
    suite = build_suite(ROOT / "config" / "suites" / f"{name}.yaml", {})
    assert len(runs_of(suite.settings, Path("out"))) == runs
    for kind, one in suite.configs.items():
        other = suite.configs.get(replace(kind, mode="sequential"), one)
        assert (one.env, one.training, one.objective) == (other.env, other.training, other.objective)


def test_the_suite_of_all_games_has_the_published_recipe() -> None:
    file = ROOT / "config" / "suites" / "procgen16.yaml"
    suite = build_suite(file, {})
    assert suite.settings.games == list(GAMES)
    assert len(runs_of(suite.settings, Path("out"))) == 16 * 3
    paper = new_config("ppo", "sequential", ROOT / "config" / "ppo_paper.yaml", {})
    found = suite.configs[Kind("ppo", "sequential")]
    assert (found.training, found.objective) == (paper.training, paper.objective)
    assert (found.training.total_timesteps, found.env.num_envs, found.env.num_levels) == (25_000_000, 64, 200)
    shorter = build_suite(file, {"total_timesteps": ("--total-timesteps", 5e5)})
    assert shorter.configs[Kind("ppo", "sequential")].training.total_timesteps == 500_000


# --- what is refused


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seedz: [1]", ["unknown key seedz", "did you mean seeds"]),
        ("learning_rate: 1e-3", ["unknown key learning_rate; did you mean overrides.learning_rate?"]),
        ("env: coinrun", ["unknown key env; did you mean games?"]),
        ("colour: blue", ["unknown key colour", "algorithms, modes, seeds"]),
        ("seeds: [1, x]", ["seeds: 'x'", "whole numbers from 0"]),
        ("seeds: [-1]", ["seeds: -1", "whole numbers from 0"]),
        ("seeds: [1.5]", ["seeds: 1.5", "whole numbers"]),
        ("seeds: []", ["seeds: []", "one or more"]),
        ("seeds: [4, 4]", ["seeds: 4 is given twice"]),
        ("games: [coinrun, procgen-coinrun-v0]", ["games: coinrun is given twice"]),
        ("games: [coinrn]", ["games:", "did you mean coinrun"]),
        ("games: [CartPole-v1, CartPole-v9]", ["games:", "did you mean CartPole-v1"]),
        ("algorithms: [dqn]", ["algorithms: 'dqn' does not exist", "valid: ppo"]),
        ("modes: [paralel]", ["modes: 'paralel' does not exist", "did you mean parallel"]),
        ("duration_hours: 0", ["duration_hours: 0", "above 0"]),
        ("duration_hours: .inf", ["duration_hours: inf", "above 0"]),
        ("duration_hours: soon", ["duration_hours: 'soon'", "above 0"]),
        ("total_timesteps: 1000", ["duration_hours", "total_timesteps", "cannot be used together"]),
        ("duration_hours: null\ntotal_timesteps: 0", ["total_timesteps: 0", "from 1 to 10^12"]),
        ("duration_hours: null\ntotal_timesteps: 100", ["total_timesteps: 100", "less than one rollout"]),
        ("duration_hours: null", ["no training length given", "--duration"]),
        ("eval_episodes: -3", ["eval_episodes: -3", "from 0"]),
        ("cool_down: -1", ["cool_down: -1", "from 0 to 86400"]),
        ("overrides: [1]", ["overrides: [1]", "config keys"]),
        ("overrides: {num_evns: 3}", ["overrides: unknown key num_evns", "did you mean num_envs"]),
        ("overrides: {seed: 3}", ["overrides.seed", "set by seeds"]),
        ("overrides: {num_envs: 0}", ["overrides.num_envs: 0", "from 1 to 16384"]),
        ("algorithms: [a3c]\nmodes: [sequential]", ["modes: a3c has none of these modes; it has parallel"]),
        (
            "algorithms: [a2c]\noverrides: {batch_size: 64}",
            ["overrides.batch_size: belongs to ppo and impala", "has a2c"],
        ),
        ("overrides: {num_slots: 9}", ["overrides.num_slots: belongs to impala, but this suite has ppo"]),
        ("algorithms: [impala]\noverrides: {clip_range: 0.1}", ["overrides.clip_range: belongs to ppo", "has impala"]),
        (
            "algorithms: [ppo, impala]\noverrides: {num_slots: 2, num_workers: 4}",
            ["overrides.num_slots: 2 slots cannot hold", "4 actors", "at least 4"],
        ),
        ("games: [coinrun, maze]\noverrides: {distribution_mode: memory}", ["coinrun has no mode 'memory'"]),
        ("config: {ppo_paralel: x.yaml}", ["config: unknown key ppo_paralel", "did you mean ppo_parallel"]),
        ("config: no/such.yaml", ["no/such.yaml", "No such file"]),
        ("seeds: [1]\nseeds: [2]", ["line 3", "given twice"]),
        ("seeds: !!python/object/apply:os.getcwd []", ["line 2", "python/object"]),
    ],
)
def test_a_mistake_in_a_suite_file_is_named_with_what_would_be_valid(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text + "\n" if "duration" in text else f"duration_hours: 1\n{text}\n")
    with pytest.raises(UsageError) as caught:
        build_suite(file, {})
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    if "such.yaml" not in text and words[0] != "no training length given":
        assert str(file) in message


def test_an_empty_suite_file_and_a_gpu_for_parallel_runs_are_refused_in_advance(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("")
    with pytest.raises(UsageError, match=r"mine\.yaml: is empty; expected keys such as 'seeds:'"):
        build_suite(file, {})
    file.write_text("duration_hours: 1\nmodes: [parallel]\noverrides: {device: cuda}\n")
    with pytest.raises(UsageError, match="parallel PPO runs on CPU cores"):
        build_suite(file, {})


def test_a_flag_that_no_algorithm_of_the_suite_has_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"^--num_slots: belongs to impala, but this suite has ppo$"):
        build_suite(None, flags(duration_hours=1, num_slots=9))


def test_mistakes_on_the_command_line_are_one_line_and_exit_2(tmp_path: Path) -> None:
    there = ("benchmark", "--output-dir", tmp_path / "out")
    rlcb_here(*there, "--seds", "3").assert_one_line_error(2, "--seds", "did you mean --seeds")
    rlcb_here(*there).assert_one_line_error(2, "no suite to resume", "--duration")
    rlcb_here(*there, "--seeds", "1", "x", "--duration", "1").assert_one_line_error(2, "--seeds: 'x'")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").touch()
    rlcb_here(*there, "--duration", "1").assert_one_line_error(2, "is a file")


def test_a_number_of_seeds_is_the_seeds_from_1(tmp_path: Path) -> None:
    there = ("benchmark", "--output-dir", tmp_path / "suite", "--dry-run", "--modes", "sequential")
    length = ("--total-timesteps", "8192", "--games", "CartPole-v1")
    three = rlcb_here(*there, *length, "--num-seeds", "3")
    assert three.stdout == rlcb_here(*there, *length, "--seeds", "1", "2", "3").stdout
    assert three.returncode == 0, three.stderr
    assert "note: --seeds" not in three.stderr
    one = rlcb_here(*there, *length, "--seeds", "3")
    assert one.returncode == 0
    assert "note: --seeds 3: the one seed 3; --num-seeds 3 gives seeds 1 to 3\n" in one.stderr
    assert "the one seed" not in rlcb_here(*there, *length, "--seeds", "1").stderr
    both = rlcb_here(*there, *length, "--seeds", "1", "--num-seeds", "3")
    both.assert_one_line_error(2, "--seeds and --num-seeds cannot be used together")
    for wrong in ("0", "x", "101"):
        done = rlcb_here(*there, *length, "--num-seeds", wrong)
        done.assert_one_line_error(2, f"--num-seeds: '{wrong}' is not a whole number from 1 to 100")


def test_a_number_of_seeds_extends_a_suite(tmp_path: Path) -> None:
    suite = build_suite(None, flags(games=["CartPole-v1"], modes=["sequential"], seeds=[1, 2], total_timesteps=8192))
    store(tmp_path, suite)
    done = rlcb_here("benchmark", "--output-dir", tmp_path, "--num-seeds", "4", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "seeds 3, 4 (2 runs)" in done.stdout
    fewer = rlcb_here("benchmark", "--output-dir", tmp_path, "--num-seeds", "1", "--dry-run")
    fewer.assert_one_line_error(2, "seeds [1, 2] there and [1] here")


def test_a_call_from_python_takes_a_number_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    def asked(**settings: Any) -> Any:
        taken = benchmark_parser().take({"output_dir": "suite", **settings}, ("dry_run",))
        taken.dry_run = False
        return suite_request(taken, parameter_of)["flags"]["seeds"]

    assert asked(num_seeds=2) == ("num_seeds", [1, 2])
    assert asked(seeds=[4, 5]) == ("seeds", [4, 5])
    with pytest.raises(UsageError, match="seeds and num_seeds cannot be used together"):
        asked(num_seeds=2, seeds=[1])
    assert asked(seeds=3) == ("seeds", [3])
    assert "note: seeds 3: the one seed 3; num_seeds 3 gives seeds 1 to 3" in capsys.readouterr().err


def test_a_suite_continues_only_with_what_it_began_with(tmp_path: Path) -> None:
    began = build_suite(None, flags(seeds=[1, 2], duration_hours=0.5, num_envs=16, batch_size=512))
    store(tmp_path, began)
    planned = stored(tmp_path)
    assert planned == began
    continued(tmp_path, planned, began)
    other = build_suite(None, flags(seeds=[1], duration_hours=0.5, num_envs=32, batch_size=512, gamma=0.9))
    with pytest.raises(
        UsageError, match=r"seeds \[1, 2\] there and \[1\] here; num_envs 16 there and 32 here; gamma not set"
    ):
        continued(tmp_path, planned, other)


def test_a_config_file_that_changed_meanwhile_is_noticed_and_measured_workers_are_not_a_change(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("training: {gamma: 0.9}\n")
    settings = flags(modes=["parallel"], duration_hours=1, config=str(file), num_workers="auto", num_envs=32)
    began = build_suite(None, settings)
    measured = build_suite(None, {**settings, **flags(num_workers=2)})
    store(tmp_path, type(began)(began.settings, measured.configs))
    continued(tmp_path, stored(tmp_path), began)
    file.write_text("training: {gamma: 0.8}\n")
    with pytest.raises(UsageError, match=r"ppo_parallel: training.gamma 0.9 there and 0.8 here"):
        continued(tmp_path, stored(tmp_path), build_suite(None, settings))


def test_a_disk_that_is_too_small_for_all_runs_is_refused(tmp_path: Path) -> None:
    suite = build_suite(None, flags(duration_hours=1, keep_checkpoints=10**6, num_envs=16384, num_workers=1))
    runs = runs_of(suite.settings, tmp_path)
    with pytest.raises(ResourceError, match="MB needed for 6 runs"):
        check_room(tmp_path, runs, suite.configs)
    check_room(tmp_path, [], suite.configs)


# --- what is seen


def test_a_terminal_shows_a_bar_with_the_last_words_of_the_runs_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setenv("TERM", "xterm")  # a dumb one shows no bar
    screen = io.StringIO()
    display = Display(Console(file=screen, force_terminal=True, width=100))
    times = f"elapsed {clock(723)}, about {clock(2280)} left"
    display.show("Training", 0.25, times, ["[3/12] ppo parallel coinrun seed 2: Update 7 | Step 28,672", "[4/12] …"])
    display.line("[3/12] ppo parallel coinrun seed 2: finished")
    display.close()
    seen = screen.getvalue()
    for words in (
        "25 %",
        "elapsed 0:12:03, about 0:38:00 left",
        "Update 7 | Step 28,672",
        "[4/12] …",
        "seed 2: finished",
    ):
        assert words in seen


@pytest.mark.parametrize(
    ("levels", "change", "enough"),
    [
        (["train", "unseen"], {}, True),
        (["train", "unseen"], {"episodes": 9}, False),
        (["train", "unseen"], {"complete": False}, False),
        (["train", "unseen"], {"policy": "deterministic"}, False),
        (["train", "unseen"], {"env": "procgen-maze-v0"}, False),
        (["train"], {}, False),
    ],
)
def test_a_game_counts_as_evaluated_when_both_kinds_of_levels_are(
    tmp_path: Path, levels: list[str], change: dict[str, Any], enough: bool
) -> None:
    suite = build_suite(None, flags(duration_hours=1, num_levels=200))
    run = runs_of(suite.settings, tmp_path)[0]
    run.final_checkpoint.parent.mkdir(parents=True)
    run.final_checkpoint.write_bytes(b"weights")
    entry = {"env": "procgen-coinrun-v0", "policy": "sampled", "episodes": 10, "complete": True, "mean_reward": 1.0}
    entry |= change
    document = {
        "checkpoint_sha256": hashlib.sha256(b"weights").hexdigest(),
        "evaluations": [{**entry, "levels": name} for name in levels],
    }
    file = run.final_checkpoint.with_name("ppo_sequential_final_evaluation.json")
    file.write_text(json.dumps(document))
    assert is_evaluated(run, suite.configs[Kind("ppo", "sequential")], 10) is enough
    all_levels = build_suite(None, flags(duration_hours=1, num_levels=0)).configs[Kind("ppo", "sequential")]
    assert is_evaluated(run, all_levels, 10) is (not change)
