"""Configuration files and flags: what loads, and how the rest is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, rlcb
from rlcb.commands.flags import flag_of
from rlcb.commands.train import FIXED_KEYS, TIMED_KEYS
from rlcb.config import Config, fields
from rlcb.config_file import build_config
from rlcb.errors import UsageError
from rlcb.yamlfile import parse_scalar

# The two PPO examples in circulation: one with everything under `training`, one with hardware apart.
EVERYTHING_UNDER_TRAINING = """
env:
  name: "procgen-coinrun-v0"
  seed: 42
training:
  num_envs: 64
  n_steps: 256
  total_timesteps: 25_000_000
  batch_size: 2048
  n_epochs: 4
  learning_rate: 0.0003
  gamma: 0.999
  gae_lambda: 0.95
  clip_range: 0.2
  ent_coef: 0.01
  vf_coef: 0.5
  max_grad_norm: 0.5
  log_interval: 1
  save_interval: 100
  device: cpu
  num_threads: 16
logging:
  checkpoint_dir: "./checkpoints/ppo_sequential_ryzen7"
  log_dir: "./logs"
"""
HARDWARE_APART = """
env:
  name: "procgen-coinrun-v0"
  num_envs: 32
  seed: 42
training:
  n_steps: 128
  batch_size: 1024
  n_epochs: 4
hardware:
  device: "cpu"
  num_threads: null
"""


def load(tmp_path: Path, text: str | bytes) -> Config:
    path = tmp_path / "some.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return build_config(path, {})


def test_every_shipped_config_loads() -> None:
    files = sorted((ROOT / "config").glob("*.yaml"))
    expected = {
        f"ppo_{mode}{machine}" for mode in ("sequential", "parallel") for machine in ("", "_ryzen7", "_highend")
    }
    assert {*expected, "ppo_paper"} <= {file.stem for file in files}
    for file in files:
        config = build_config(file, {}, mode="parallel" if "parallel" in file.stem else "sequential")
        assert config.rollout_size % config.minibatch_size == 0


def test_default_config_file_says_what_the_defaults_are() -> None:
    assert build_config(ROOT / "config" / "ppo_sequential.yaml", {}) == build_config(None, {})


def test_numbers_of_the_machine_configs() -> None:
    ryzen = build_config(ROOT / "config" / "ppo_sequential_ryzen7.yaml", {})
    highend = build_config(ROOT / "config" / "ppo_sequential_highend.yaml", {})
    paper = build_config(ROOT / "config" / "ppo_paper.yaml", {})
    for machine, workers, each in (("", 4, 8), ("_ryzen7", 4, 16), ("_highend", 7, 16)):
        parallel = build_config(ROOT / "config" / f"ppo_parallel{machine}.yaml", {}, mode="parallel")
        assert (parallel.parallel.num_workers, parallel.parallel.num_envs_per_worker) == (workers, each)
        assert parallel.env.num_envs == workers * each
    assert (ryzen.env.num_envs, ryzen.training.n_steps, highend.env.num_envs) == (64, 256, 112)
    assert (paper.rollout_size // paper.minibatch_size, paper.training.n_epochs) == (8, 3)
    assert (paper.training.learning_rate, paper.training.network, paper.ppo.clip_value) == (5e-4, "impala", True)


def test_both_placements_of_keys_mean_the_same(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING_UNDER_TRAINING)
    assert (config.env.num_envs, config.ppo.clip_range, config.hardware.num_threads) == (64, 0.2, 16)
    assert config.logging.save_interval == 100
    assert load(tmp_path, HARDWARE_APART) == build_config(None, {})


def test_round_trip_through_yaml(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING_UNDER_TRAINING)
    assert load(tmp_path, config.to_yaml()) == config


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("5E5", 5e5), ("25_000_000", 25_000_000), ("null", None), ("true", True), ("cpu", "cpu")],
)
def test_scalars_are_what_people_mean(text: str, value: object) -> None:
    assert parse_scalar(text) == value


def test_scientific_notation_and_whole_floats(tmp_path: Path) -> None:
    config = load(tmp_path, "training: {learning_rate: 1e-4, total_timesteps: 25e6}")
    assert (config.training.learning_rate, config.training.total_timesteps) == (1e-4, 25_000_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("env: {num_env: 3}", ["env.num_env", "did you mean env.num_envs"]),
        ("trainign: {n_steps: 3}", ["trainign", "did you mean training"]),
        ("env: {num_envs: 3}\ntraining: {num_envs: 4}", ["num_envs", "given twice", "3", "4"]),
        ("env:\n  seed: 1\n  seed: 2", ["line 3", "'seed' is given twice"]),
        ("env: [1, 2]", ["env", "key: value"]),
        ("- a\n- b", ["holds a list"]),
        ("", ["is empty"]),
        ("just words", ["holds a str"]),
        ("env:\n\tseed: 1", ["line 2"]),
        ("env: {name: !!python/object/apply:os.system ['true']}", ["line 1"]),
        ("env: &a {seed: 1}\ntraining: *a", ["aliases"]),
        ("env: {seed: 1", ["line"]),
        (b"env: {name: \xff\xfe}", ["UTF-8"]),
        ("env: {1: 2}", ["not text"]),
        ("training: {batch_size: 1000}", ["does not divide", "512 and 1024"]),
        ("training: {total_timesteps: 4095}", ["smallest valid value is 4096"]),
        ("env: {name: coinrun, distribution_mode: memory}", ["coinrun has no mode", "easy, hard"]),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str | bytes, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "some.yaml" in message
    assert "\n" not in message
    for word in words:
        assert word in message


def test_bomb_of_aliases_and_huge_file_are_refused(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "\n".join(f"b{i}: &b{i} [*{'a' if i == 0 else f'b{i - 1}'}, x]" for i in range(30))
    with pytest.raises(UsageError, match="aliases"):
        load(tmp_path, bomb)
    with pytest.raises(UsageError, match="larger than"):
        load(tmp_path, "# " + "x" * 10_000_000)


def test_code_in_a_config_does_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    bad = tmp_path / "bad.yaml"
    bad.write_text(f"env: !!python/object/apply:os.system ['touch {marker}']\n")
    rlcb("train", "ppo", "--config", bad).assert_one_line_error(2, "bad.yaml")
    assert not marker.exists()


OUT_OF_RANGE = {
    "num_envs": (0, -1, 1e9, 1.5, "many", True),
    "num_threads": (0, -1, 10_000, "all"),
    "num_levels": (-1, 2**31, "x"),
    "start_level": (-1, 2**31),
    "seed": (-1, 2**31, "x"),
    "learning_rate": (0, -1, float("nan"), float("inf"), "fast"),
    "gamma": (-0.1, 1.1, float("nan")),
    "gae_lambda": (-0.1, 1.1),
    "total_timesteps": (0, -5, 1.5),
    "duration_hours": (0, -1, float("inf"), float("nan"), 1e9),
    "n_steps": (0, -1, 10**7),
    "batch_size": (0, -1),
    "micro_batch_size": (0, -1),
    "n_epochs": (0, -1),
    "clip_range": (0, -0.2, float("nan")),
    "ent_coef": (-0.1, float("inf")),
    "vf_coef": (-1, float("nan")),
    "max_grad_norm": (0, -1),
    "log_interval": (0, -1),
    "save_interval": (0, -1),
    "keep_checkpoints": (0, 1),
    "device": ("tpu", 3),
    "network": ("resnet", None),
    "lr_schedule": ("cosine",),
    "distribution_mode": ("exploration", 1),
}
CASES = [(key, value) for key, values in OUT_OF_RANGE.items() for value in values]


@pytest.mark.parametrize(("key", "value"), CASES)
def test_values_out_of_range_name_the_flag_and_the_range(key: str, value: object) -> None:
    assert len(CASES) >= 40
    with pytest.raises(UsageError) as caught:
        build_config(None, {key: (flag_of(key), value)})
    assert flag_of(key) in str(caught.value)
    assert "must be" in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(
    key=st.sampled_from(["num_envs", "num_threads", "n_steps", "batch_size", "n_epochs", "total_timesteps"]),
    value=st.one_of(
        st.integers(max_value=0), st.floats(allow_nan=True).filter(lambda x: not x.is_integer()), st.text()
    ),
)
def test_generated_rubbish_is_a_usage_error(key: str, value: object) -> None:
    with pytest.raises(UsageError):
        build_config(None, {key: (flag_of(key), value)})


@settings(max_examples=60, deadline=None)
@given(num_envs=st.integers(1, 300), n_steps=st.integers(1, 300), batch_size=st.integers(1, 4000))
def test_an_indivisible_batch_is_answered_with_divisors(num_envs: int, n_steps: int, batch_size: int) -> None:
    values = {"num_envs": num_envs, "n_steps": n_steps, "batch_size": batch_size}
    size = num_envs * n_steps
    try:
        config = build_config(None, {key: (key, value) for key, value in values.items()})
        assert size % config.minibatch_size == 0
    except UsageError as error:
        below, above = (int(word) for word in str(error).rsplit("are ", 1)[1].split(" and "))
        assert size % below == 0
        assert size % above == 0
        assert below < batch_size < above


def test_every_key_has_one_flag_and_one_home() -> None:
    keys = [key for _, key, _ in fields()]
    assert len(set(keys)) == len(keys)
    assert len({flag_of(key) for key in keys}) == len(keys)
    assert set(TIMED_KEYS) < set(FIXED_KEYS) <= set(keys)
    assert all(field.description for _, _, field in fields())
