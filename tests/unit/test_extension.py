"""More seeds, games, algorithms, modes and variants for a suite that exists; everything else stays what it was."""

import os
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb.analysis.suites import read_suite
from rlcb.config.registry import Kind
from rlcb.config.schema import Config
from rlcb.envs.own_code import permit
from rlcb.errors import UsageError
from rlcb.run.directory import LOCK
from rlcb.suite import benchmark as benchmark_module
from rlcb.suite.directory import runs_of, store, stored
from rlcb.suite.extension import additions, continued
from rlcb.suite.jobs import with_threads
from rlcb.suite.settings import Suite, build_suite

BASE: dict[str, Any] = {"games": ["CartPole-v1"], "modes": ["sequential"], "seeds": [1, 2], "total_timesteps": 10_000}
PPO = Kind("ppo", "sequential")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def suite_of(**changes: Any) -> Suite:
    values = {key: value for key, value in (BASE | changes).items() if value is not None}
    return build_suite(None, {key: (f"--{key}", value) for key, value in values.items()})


def begun(output: Path, **changes: Any) -> Suite:
    """A suite that was started in a directory of a machine with 8 cores, as it is kept there."""
    store(output, with_threads(suite_of(**changes), 8))
    return stored(output)


def contents(output: Path) -> dict[Path, bytes]:
    """All files of a suite's directory except for its lock."""
    return {path: path.read_bytes() for path in output.rglob("*") if path.is_file() and path.name != LOCK}


def refusal(output: Path, planned: Suite, wanted: Suite) -> str:
    with pytest.raises(UsageError) as caught:
        continued(output, planned, wanted)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- what is added


def test_added_seeds_come_after_the_recorded_ones_whatever_the_order(tmp_path: Path) -> None:
    planned = begun(tmp_path)
    suite = continued(tmp_path, planned, suite_of(seeds=[4, 2, 3, 1]))
    assert suite.settings.seeds == [1, 2, 4, 3]
    assert suite.configs == planned.configs
    added = additions(tmp_path, suite)
    assert added
    assert str(added) == "seeds 4, 3 (2 runs)"
    assert added.values == {"seeds": [4, 3]}
    assert added.runs == ["ppo sequential CartPole-v1 seed 4", "ppo sequential CartPole-v1 seed 3"]
    store(tmp_path, suite)
    assert stored(tmp_path) == suite
    assert additions(tmp_path, suite) is None
    assert list(read_suite(tmp_path).runs) == runs_of(suite.settings, tmp_path)


def test_the_same_values_in_another_order_are_the_same_suite(tmp_path: Path) -> None:
    planned = begun(tmp_path, games=["CartPole-v1", "Acrobot-v1"])
    assert continued(tmp_path, planned, suite_of(seeds=[2, 1], games=["Acrobot-v1", "CartPole-v1"])) is planned
    assert additions(tmp_path, planned) is None


def test_everything_that_can_be_added_at_once(tmp_path: Path) -> None:
    planned = begun(tmp_path)
    more = {"games": ["Acrobot-v1", "CartPole-v1"], "algorithms": ["a2c", "ppo"], "modes": ["parallel", "sequential"]}
    suite = continued(tmp_path, planned, suite_of(**more, num_workers=2))
    added = additions(tmp_path, suite)
    assert str(added) == "game Acrobot-v1; algorithm a2c; mode parallel (14 runs)"
    assert suite.configs[PPO] == planned.configs[PPO]
    assert suite.settings.overrides == {"num_workers": 2}  # it has no effect on the recorded runs
    assert suite.configs[Kind("ppo", "parallel")].parallel.num_workers == 2
    recorded = runs_of(planned.settings, tmp_path)
    assert [run for run in runs_of(suite.settings, tmp_path) if run in recorded] == recorded


def test_an_added_kind_of_run_has_the_threads_of_the_recorded_ones(tmp_path: Path) -> None:
    planned = begun(tmp_path, games=["coinrun"])
    assert planned.configs[PPO].hardware.num_threads == 4
    wanted = suite_of(games=["coinrun"], algorithms=["ppo", "a2c"])
    threads = {config.hardware.num_threads for config in continued(tmp_path, planned, wanted).configs.values()}
    assert threads == {4}  # a new suite of four runs would give each two of eight cores


def test_kinds_that_are_added_get_their_threads_and_recorded_ones_keep_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_module, "core_shares", lambda: [[core] for core in range(8)])
    parallel = {"modes": ["sequential", "parallel"], "num_workers": 2}
    earlier = suite_of(games=["coinrun"], modes=["parallel"], num_workers=2)
    for configs, threads in ((with_threads(earlier, 8).configs, 4), (earlier.configs, None)):
        store(tmp_path, Suite(earlier.settings, configs))
        planned = stored(tmp_path)
        suite = continued(tmp_path, planned, suite_of(games=["coinrun"], **parallel))
        found = benchmark_module._planned(tmp_path, suite).configs
        assert found[PPO].hardware.num_threads == threads  # none where an earlier version began the suite
        assert found[Kind("ppo", "parallel")] == planned.configs[Kind("ppo", "parallel")]


def test_an_added_variant_has_the_precision_that_was_measured_for_the_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = "total_timesteps: 10000\nmodes: [sequential]\noverrides: {precision: auto}\nvariants:\n  base:\n"
    file.write_text(text)
    began = build_suite(file, {})
    base, low = Kind("ppo", "sequential", "base"), Kind("ppo", "sequential", "low")
    measured: dict[Kind, Config] = {base: began.configs[base].changed("hardware", precision="bf16")}
    store(tmp_path / "out", Suite(began.settings, measured))
    file.write_text(f"{text}  low: {{ent_coef: 0.001}}\n  own: {{gamma: 0.9, precision: fp32}}\n")
    suite = continued(tmp_path / "out", stored(tmp_path / "out"), build_suite(file, {}))
    assert str(additions(tmp_path / "out", suite)) == "variants low, own (6 runs)"
    assert list(suite.settings.variants) == ["base", "low", "own"]
    precisions = [config.hardware.precision for config in suite.configs.values()]
    assert precisions == ["bf16", "bf16", "fp32"]
    assert suite.configs[low].objective.ent_coef == 0.001


def test_a_game_of_ones_own_brings_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = begun(tmp_path / "out")
    (tmp_path / "added_games.py").write_text(
        "import gymnasium\ngymnasium.register('Added-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    permit(["added_games"])
    suite = continued(tmp_path / "out", planned, suite_of(games=["CartPole-v1", "added_games:Added-v0"]))
    assert suite.settings.games == ["CartPole-v1", "Added-v0"]
    assert suite.settings.overrides == {"imports": ["added_games"]}
    assert suite.configs[PPO].env.imports == ["added_games"]


# --- what is refused


def test_a_recorded_value_that_is_missing_is_named_with_what_would_work(tmp_path: Path) -> None:
    planned = begun(tmp_path)
    message = refusal(tmp_path, planned, suite_of(seeds=[3, 2]))
    assert "contains a suite with different settings: seeds [1, 2] there and [3, 2] here." in message
    assert message.endswith("Values can be added, not removed: use --seeds 1 2 3, or another --output-dir")
    message = refusal(tmp_path, planned, suite_of(games=["Acrobot-v1"], modes=["parallel"], num_workers=2))
    assert "use --games CartPole-v1 Acrobot-v1 --modes sequential parallel, or another" in message


def test_a_default_that_nobody_asked_for_is_not_advised(tmp_path: Path) -> None:
    message = refusal(tmp_path, begun(tmp_path), suite_of(games=None, seeds=[1, 2, 3]))
    assert "settings: games ['CartPole-v1'] there and ['coinrun'] here by default." in message
    assert message.endswith("use --games CartPole-v1, or another --output-dir")


def test_another_setting_is_refused_also_together_with_more_seeds(tmp_path: Path) -> None:
    planned = begun(tmp_path)
    for changes, words in (
        ({"total_timesteps": 20_000}, "total_timesteps 10000 there and 20000 here"),
        ({"eval_episodes": 7}, "eval_episodes 100 there and 7 here"),
        ({"gamma": 0.9}, "gamma not set there and 0.9 here"),
    ):
        message = refusal(tmp_path, planned, suite_of(seeds=[1, 2, 3], **changes))
        assert f"settings: {words}. Use the recorded values (--output-dir alone resumes that suite)" in message
    assert "gamma 0.9 there and not set here" in refusal(
        tmp_path, begun(tmp_path, gamma=0.9), suite_of(seeds=[1, 2, 3])
    )


def test_variants_cannot_be_added_to_a_suite_that_has_none_or_changed(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = "total_timesteps: 10000\nmodes: [sequential]\ngames: [CartPole-v1]\nseeds: [1, 2]\n"
    file.write_text(f"{text}variants:\n  base:\n  low: {{ent_coef: 0.001}}\n")
    wanted = build_suite(file, {})
    assert "variants.base not set there and {} here" in refusal(tmp_path, begun(tmp_path / "a"), wanted)
    store(tmp_path / "b", wanted)
    assert "variants.base {} there and not set here" in refusal(tmp_path, stored(tmp_path / "b"), suite_of())


# --- the command


def test_the_flags_of_what_is_added_suffice_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out"
    begun(output, num_envs=8, eval_episodes=0)
    before = contents(output)
    shown = rlcb_here("benchmark", "--output-dir", output, "--seeds", "1", "2", "7", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"Would be added to the suite in {output}: seed 7 (1 run)\n")
    assert "[3/3] ppo sequential CartPole-v1 seed 7: would be started" in shown.stdout
    assert contents(output) == before
    wrong = rlcb_here("benchmark", "--output-dir", output, "--seeds", "7")
    wrong.assert_one_line_error(2, "seeds [1, 2] there and [7] here", "use --seeds 1 2 7")
    wrong = rlcb_here("benchmark", "--output-dir", output, "--seeds", "1", "2", "7", "--gamma", "0.5")
    wrong.assert_one_line_error(2, "gamma not set there and 0.5 here")
    wrong = rlcb_here("benchmark", "--output-dir", output, "--games", "CartPole-v1", "CartPole-v2")
    wrong.assert_one_line_error(2, "--games", "CartPole-v2")
    assert contents(output) == before


def test_a_recorded_configuration_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, output = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text("training: {gamma: 0.9}\n")
    begun(output, config=str(file))
    os.unlink(file)
    monkeypatch.chdir(tmp_path)
    shown = rlcb_here("benchmark", "--output-dir", output, "--seeds", "1", "2", "3", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    missing = rlcb_here("benchmark", "--output-dir", output, "--algorithms", "ppo", "a2c", "--dry-run")
    missing.assert_one_line_error(2, "config", str(file))
