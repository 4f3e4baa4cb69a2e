"""Configuration files and flags: what loads, and how the rest is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb.commands.keys import FIXED_KEYS, TIMED_KEYS
from rlcb.config.division import division_note
from rlcb.config.load import build_config
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config, all_keys, fields
from rlcb.config.yaml_file import parse_scalar
from rlcb.errors import UsageError
from rlcb.flags import flag_of
from rlcb.words import counted

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
# The IMPALA example in circulation, with its own names for two of the coefficients.
IMPALA_EXAMPLE = """
env:
  name: "procgen-coinrun-v0"
  seed: 42
training:
  num_envs: 48
  n_steps: 128
  total_timesteps: 25_000_000
  learning_rate: 0.0001
impala:
  vtrace_clip_rho_threshold: 1.0
  vtrace_clip_pg_rho_threshold: 1.0
  entropy_coef: 0.01
  value_coef: 0.5
  max_grad_norm: 40.0
hardware:
  device: "cpu"
  num_threads: 16
"""
EIGHT = "training: {n_steps: 128, batch_size: 1024}"  # environments of IMPALA in a minibatch
PAIRS = [(algorithm, mode) for algorithm, entry in ALGORITHMS.items() for mode in entry.modes]


def load(tmp_path: Path, text: str | bytes, algorithm: str = "ppo", mode: str = "sequential") -> Config:
    path = tmp_path / "some.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return build_config(path, {}, mode=mode, algorithm=algorithm)


def test_every_shipped_config_loads() -> None:
    files = sorted((ROOT / "config").glob("*.yaml"))
    usual = {f"{algorithm}_{mode}" for algorithm, mode in PAIRS}
    of_machines = {pair for pair in usual if pair.startswith(("ppo", "impala"))}
    machines = {f"{pair}_{machine}" for pair in of_machines for machine in ("ryzen7", "highend")}
    assert usual | machines | {"ppo_paper"} <= {file.stem for file in files}
    for file in files:
        mode = "parallel" if "parallel" in file.stem else "sequential"
        config = build_config(file, {}, mode=mode, algorithm=file.stem.split("_")[0])
        assert config.rollout_size % config.minibatch_size == 0
        assert config.minibatch_items > 0


@pytest.mark.parametrize("algorithm", [algorithm for algorithm, mode in PAIRS if mode == "sequential"])
def test_default_config_file_says_what_the_defaults_are(algorithm: str) -> None:
    file = ROOT / "config" / f"{algorithm}_sequential.yaml"
    found, expected = build_config(file, {}, algorithm=algorithm), build_config(None, {}, algorithm=algorithm)
    if ALGORITHMS[algorithm].whole_rollout:  # updates so short that the file logs and saves fewer of them
        found = found.model_copy(update={"logging": expected.logging})
    assert found == expected


def test_numbers_of_the_machine_configs() -> None:
    ryzen = build_config(ROOT / "config" / "ppo_sequential_ryzen7.yaml", {})
    highend = build_config(ROOT / "config" / "ppo_sequential_highend.yaml", {})
    paper = build_config(ROOT / "config" / "ppo_paper.yaml", {})
    for machine, workers, each, total in (
        ("", "auto", None, 32),
        ("_ryzen7", 4, 16, 64),
        ("_highend", 7, 16, 112),
    ):
        parallel = build_config(ROOT / "config" / f"ppo_parallel{machine}.yaml", {}, mode="parallel")
        assert (parallel.parallel.num_workers, parallel.parallel.num_envs_per_worker) == (workers, each)
        assert parallel.env.num_envs == total
    assert (ryzen.env.num_envs, ryzen.training.n_steps, highend.env.num_envs) == (64, 256, 112)
    assert (paper.rollout_size // paper.minibatch_size, paper.training.n_epochs) == (8, 3)
    assert (paper.training.learning_rate, paper.training.network, paper.ppo.clip_value) == (5e-4, "impala", True)


@pytest.mark.parametrize(("machine", "actors", "each"), [("", "auto", None), ("_ryzen7", 4, 12), ("_highend", 7, 16)])
def test_numbers_of_the_impala_configs(machine: str, actors: int | str, each: int | None) -> None:
    sequential = build_config(ROOT / "config" / f"impala_sequential{machine}.yaml", {}, algorithm="impala")
    file = ROOT / "config" / f"impala_parallel{machine}.yaml"
    parallel = build_config(file, {}, mode="parallel", algorithm="impala")
    assert (parallel.parallel.num_workers, parallel.parallel.num_envs_per_worker) == (actors, each)
    assert sequential.env.num_envs == parallel.env.num_envs == (actors * each if isinstance(actors, int) else 32)
    assert sequential.training == parallel.training
    assert sequential.impala == parallel.impala
    assert (sequential.training.n_steps, sequential.training.gamma) == (128, 0.99)
    assert (sequential.impala.ent_coef, sequential.impala.vf_coef, sequential.impala.max_grad_norm) == (0.003, 0.5, 40)


def test_both_placements_of_keys_mean_the_same(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING_UNDER_TRAINING)
    assert (config.env.num_envs, config.ppo.clip_range, config.hardware.num_threads) == (64, 0.2, 16)
    assert config.logging.save_interval == 100
    assert load(tmp_path, HARDWARE_APART) == build_config(None, {})


def test_round_trip_through_yaml(tmp_path: Path) -> None:
    config = load(tmp_path, EVERYTHING_UNDER_TRAINING)
    assert load(tmp_path, config.to_yaml()) == config


@pytest.mark.parametrize(("algorithm", "mode"), PAIRS)
def test_what_is_written_is_what_counts_and_reads_back_the_same(algorithm: str, mode: str, tmp_path: Path) -> None:
    plain = build_config(None, {}, mode=mode, algorithm=algorithm)
    changes = {"num_envs": 16, "n_steps": 32, "batch_size": 128, "gamma": 0.9, "ent_coef": 0.03, "max_grad_norm": 7.0,
               "learning_rate": 1e-5, "n_epochs": 2, "lr_schedule": "linear", "num_workers": 2}  # fmt: skip
    changes = {key: value for key, value in changes.items() if key not in ALGORITHMS[algorithm].without}
    flags = {key: (flag_of(key), value) for key, value in changes.items()}
    changed = build_config(None, flags, mode=mode, algorithm=algorithm)
    for config in (plain, changed):
        again = load(tmp_path, config.to_yaml(), algorithm, mode)
        assert again == config
        assert again.algorithm == algorithm
    written = changed.as_used()
    own = ALGORITHMS[algorithm].section
    assert {entry.section for entry in ALGORITHMS.values()} & set(written) == {own}
    assert {key: written[section][key] for section, key, _ in fields(algorithm) if key in changes} == changes


@pytest.mark.parametrize(("algorithm", "mode"), PAIRS)
def test_a_configuration_to_build_on_keeps_its_algorithm(algorithm: str, mode: str) -> None:
    base = build_config(None, {"gamma": ("--gamma", 0.5)}, mode=mode, algorithm=algorithm)
    assert build_config(None, {}, base=base, mode=mode) == base


def test_the_impala_example_loads(tmp_path: Path) -> None:
    config = load(tmp_path, IMPALA_EXAMPLE, "impala")
    assert (config.env.num_envs, config.training.n_steps, config.rollout_size) == (48, 128, 6144)
    assert (config.training.learning_rate, config.training.n_epochs) == (1e-4, 3)
    impala = config.impala
    assert (impala.ent_coef, impala.vf_coef, impala.max_grad_norm) == (0.01, 0.5, 40.0)
    assert (impala.vtrace_clip_rho_threshold, impala.vtrace_clip_pg_rho_threshold) == (1.0, 1.0)
    assert config.objective is impala
    assert config.hardware.num_threads == 16
    other = IMPALA_EXAMPLE.replace("entropy_coef: 0.01", "entropy_coef: 0.02").replace("value_coef: 0.5", "vf_coef: 1")
    assert load(tmp_path, other.replace("rho_threshold: 1.0", "rho_threshold: 2.5"), "impala").impala.model_dump() == {
        "vtrace_clip_rho_threshold": 2.5, "vtrace_clip_pg_rho_threshold": 2.5, "vtrace_clip_c_threshold": 1.0,
        "ent_coef": 0.02, "vf_coef": 1.0, "max_grad_norm": 40.0,
    }  # fmt: skip


def test_minibatches_of_impala_are_environments_with_all_their_steps(tmp_path: Path) -> None:
    text = "env: {num_envs: 48}\ntraining: {n_steps: 64, batch_size: 1024}"
    assert load(tmp_path, text, "impala").minibatch_items == 16
    assert load(tmp_path, text, "ppo").minibatch_items == 1024
    whole = load(tmp_path, text.replace("1024", "4096"), "impala")
    assert (whole.minibatch_size, whole.minibatch_items) == (48 * 64, 48)


def test_actors_are_the_workers_of_impala(tmp_path: Path) -> None:
    text = f"{EIGHT}\nparallel: {{num_actors: 4, num_envs_per_actor: 12, num_learners: 2, num_slots: 6}}"
    config = load(tmp_path, text, "impala", "parallel")
    assert (config.parallel.num_workers, config.parallel.num_envs_per_worker, config.env.num_envs) == (4, 12, 48)
    assert (config.parallel.num_learners, config.parallel.num_slots) == (2, 6)
    assert load(tmp_path, text.replace("actor", "worker"), "impala", "parallel") == config
    assert config.as_used()["parallel"].keys() == {
        "num_workers", "num_envs_per_worker", "num_learners", "actor_device", "num_slots", "policy_update_frequency",
        "worker_timeout", "cluster", "min_workers", "insecure",
    }  # fmt: skip


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
        ("learning_rate: 1e-3", ["key 'learning_rate' is in no section; did you mean training.learning_rate?"]),
        ("env: {seed: 1}\nnum_envs: 3", ["key 'num_envs' is in no section; did you mean env.num_envs?"]),
        ("env: {num_envs: 3}\ntraining: {num_envs: 4}", ["num_envs", "given twice", "3", "4"]),
        ("env:\n  seed: 1\n  seed: 2", ["line 3", "'seed' is given twice"]),
        ("env: [1, 2]", ["env", "key: value"]),
        ("- a\n- b", ["contains a list"]),
        ("", ["is empty"]),
        ("just words", ["contains a str"]),
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


@pytest.mark.parametrize(
    ("algorithm", "text", "words"),
    [
        ("ppo", "impala: {max_grad_norm: 3}", ["section 'impala' belongs to impala, but this is ppo"]),
        ("impala", "ppo: {clip_range: 0.1}", ["section 'ppo' belongs to ppo, but this is impala"]),
        ("ppo", "ppo: {entropy_coef: 0.1}", ["unknown key ppo.entropy_coef", "did you mean"]),
        ("ppo", "parallel: {num_actors: 4}", ["unknown key parallel.num_actors"]),
        ("ppo", "parallel: {num_slots: 4}", ["unknown key parallel.num_slots"]),
        ("ppo", "ppo: {vtrace_clip_c_threshold: 1}", ["unknown key ppo.vtrace_clip_c_threshold"]),
        ("impala", "training: {clip_range: 0.1}", ["unknown key training.clip_range"]),
        ("impala", "impala: {clip_value: true}", ["unknown key impala.clip_value"]),
        ("impala", "parallel: {backend: gloo}", ["unknown key parallel.backend"]),
        ("ppo", "a2c: {ent_coef: 0.1}", ["section 'a2c' belongs to a2c and a3c, but this is ppo"]),
        ("a3c", "ppo: {ent_coef: 0.1}", ["section 'ppo' belongs to ppo, but this is a3c"]),
        ("a2c", "training: {batch_size: 64}", ["unknown key training.batch_size"]),
        ("a3c", "training: {n_epochs: 2}", ["unknown key training.n_epochs"]),
        ("a3c", "training: {optimizer: adam}", ["unknown key training.optimizer"]),
        ("impala", "impala: {entropy_coef: -1}", ["impala.entropy_coef: -1", "from 0 to 10"]),
        ("impala", "impala: {ent_coef: 0.1, entropy_coef: 0.2}", ["given twice", "impala.ent_coef says 0.1", "0.2"]),
        ("impala", "parallel: {num_workers: 2, num_actors: 3}", ["given twice", "2", "parallel.num_actors says 3"]),
        ("impala", "parallel: {num_actors: 0}", ["parallel.num_actors: 0", "from 1 to 1024"]),
        ("impala", "parallel: {num_actors: 3}", ["parallel.num_actors: 3", "cannot share 32"]),
        ("impala", EIGHT.replace("1024", "64"), ["training.batch_size: 64", "whole unrolls", " 128"]),
        ("impala", EIGHT.replace("128", "96"), ["training.batch_size: 1024", "whole unrolls", " 768"]),
        ("impala", f"{EIGHT}\nparallel: {{num_learners: 3}}", ["num_learners: 3", "the 8 environments", "2 and 4"]),
        ("impala", f"{EIGHT}\nparallel: {{num_learners: 9}}", ["num_learners: 9", "the 8 environments", "valid: 8"]),
        ("impala", "parallel: {num_slots: 3}", ["parallel.num_slots: 3", "4 actors", "at least 4"]),
    ],
)
def test_what_an_algorithm_does_not_have_or_cannot_divide(
    algorithm: str, text: str, words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text, algorithm, "parallel")
    message = str(caught.value)
    assert "some.yaml" in message
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_file_changes_what_its_base_says(tmp_path: Path) -> None:
    first = tmp_path / "above" / "first.yaml"
    first.parent.mkdir()
    first.write_text("env: {seed: 7, num_envs: 16}\ntraining: {gamma: 0.9, n_steps: 64}\n")
    (tmp_path / "second.yaml").write_text("base: above/first.yaml\ntraining: {gamma: 0.8}\nhardware: {num_envs: 8}\n")
    config = load(tmp_path, "base: second.yaml\nppo: {gamma: 0.7}\n")
    assert (config.training.gamma, config.training.n_steps) == (0.7, 64)
    assert (config.env.seed, config.env.num_envs) == (7, 8)
    with pytest.raises(UsageError, match=r"some.yaml: gamma is given twice: .*training.gamma says 0.6"):
        load(tmp_path, "base: second.yaml\ntraining: {gamma: 0.6}\nppo: {gamma: 0.7}\n")
    first.write_text("training: {n_steps: 0}")
    with pytest.raises(UsageError, match=r"first.yaml: training.n_steps: 0 is not valid"):
        load(tmp_path, "base: second.yaml")


@pytest.mark.parametrize(
    ("base", "text", "division"),
    [
        ("num_workers: 4, num_envs_per_worker: 8", "parallel: {num_envs_per_worker: 16}", (64, 4, 16)),
        ("num_workers: 4, num_envs_per_worker: 8", "parallel: {num_workers: 2}", (32, 2, 16)),
        ("num_workers: 4, num_envs_per_worker: 8", "env: {num_envs: 64}", (64, 4, 16)),
        ("num_workers: 4, num_envs_per_worker: 8", "parallel: {num_workers: auto}", (32, "auto", None)),
        ("num_workers: 4}\nenv: {num_envs: 64", "parallel: {num_workers: 2}", (64, 2, 32)),
        ("num_workers: 4}\nenv: {num_envs: 64", "parallel: {num_envs_per_worker: 2}", (8, 4, 2)),
        ("num_workers: auto}\nenv: {num_envs: 64", "parallel: {num_workers: 4, num_envs_per_worker: 2}", (8, 4, 2)),
    ],
)
def test_a_file_divides_the_environments_in_place_of_its_base(
    base: str, text: str, division: tuple[int, int | str, int | None], tmp_path: Path
) -> None:
    (tmp_path / "base.yaml").write_text(f"parallel: {{{base}}}\n")
    config = load(tmp_path, f"base: base.yaml\n{text}", mode="parallel")
    parallel = config.parallel
    assert (config.env.num_envs, parallel.num_workers, parallel.num_envs_per_worker) == division


@pytest.mark.parametrize(
    ("file", "workers", "division", "words"),
    [
        (
            "parallel: {num_workers: 4, num_envs_per_worker: 8}",
            2,
            (32, 2, 16),
            "32 environments in total, 16 per worker",
        ),
        ("parallel: {num_workers: auto}\nenv: {num_envs: 32}", 8, (32, 8, 4), "32 environments in total, 4 per worker"),
        (
            "parallel: {num_workers: 4, num_envs_per_worker: 8}",
            3,
            (32, 2, 16),
            "do not divide evenly among 3 workers; using 2 × 16",
        ),
        (
            "parallel: {num_workers: 4, num_envs_per_worker: 6}",
            5,
            (24, 4, 6),
            "24 environments and minibatches of 1024",
        ),
        (
            "env: {num_envs: 48}",
            3,
            (48, 2, 24),
            "do not divide evenly among 3 workers; using 2 × 24",
        ),  # minibatches do not
        ("env: {num_envs: 48}", 40, (48, 16, 3), "do not divide evenly among 40 workers; using 16 × 3"),
        ("parallel: {num_workers: 4, num_envs_per_worker: 8}", "auto", (32, "auto", None), None),
    ],
)
def test_another_number_of_workers_alone_divides_the_same_environments(
    file: str, workers: int | str, division: tuple[int, int | str, int | None], words: str | None, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(file)
    given = {"num_workers": ("--num-workers", workers)}
    config = build_config(tmp_path / "mine.yaml", given, mode="parallel")
    parallel, note = config.parallel, division_note(config, given)
    assert (config.env.num_envs, parallel.num_workers, parallel.num_envs_per_worker) == division
    assert note is words is None or (words is not None and words in str(note) and str(note).startswith("--num-workers"))


def test_a_share_that_is_given_decides_the_total(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("parallel: {num_workers: auto}\nenv: {num_envs: 32}")
    given = {"num_workers": ("--num-workers", 2), "num_envs_per_worker": ("--num-envs", 4)}
    config = build_config(tmp_path / "mine.yaml", given, mode="parallel")
    assert (config.env.num_envs, config.minibatch_size, division_note(config, given)) == (8, 1024, None)


@pytest.mark.parametrize(("share", "workers", "total"), [(8, 4, 32), (32, 1, 32), (5, 6, 30), (100, 1, 100)])
def test_a_share_alone_decides_the_number_of_workers_where_that_is_open(
    share: int, workers: int, total: int, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(
        "parallel: {num_workers: auto}\nenv: {num_envs: 32}\ntraining: {batch_size: 9999}"
    )
    given = {"num_envs_per_worker": ("--num-envs", share), "n_steps": ("--n-steps", workers)}
    config = build_config(tmp_path / "mine.yaml", given, mode="parallel")
    assert (config.parallel.num_workers, config.env.num_envs) == (workers, total)
    assert (
        division_note(config, given)
        == f"--num-envs {share}: {counted(workers, 'worker')}, {total} environments in total"
    )


@pytest.mark.parametrize(("algorithm", "machine"), [(a, m) for a in ALGORITHMS for m in ("", "_ryzen7", "_highend")])
def test_both_modes_of_the_shipped_files_do_the_same_work(algorithm: str, machine: str) -> None:
    modes = ALGORITHMS[algorithm].modes
    files = {mode: ROOT / "config" / f"{algorithm}_{mode}{machine}.yaml" for mode in modes}
    configs = [build_config(files[m], {}, mode=m, algorithm=algorithm) for m in modes if files[m].exists()]
    work = [(one.env, one.training, one.objective, one.rollout_size, one.minibatch_size) for one in configs]
    assert all(one == work[0] for one in work)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("none.yaml", ["base: there is no file", "none.yaml; for valid names, see rlcb configs"]),
        ("ppo_papr", ["base: there is no file", "ppo_papr; did you mean ppo_paper?"]),
        ("ppo_papr.yaml", ["base: there is no file", "did you mean ppo_paper?"]),
        ("some.yaml", ["base:", "itself based on this file"]),
        ("./loop.yaml", ["loop.yaml: base:", "itself based on this file"]),
        ("f1.yaml", ["at most 4 files"]),
        (".", ["base: there is no file"]),
        ("/dev/zero", ["base: '/dev/zero' is not valid", "relative to this file"]),
        ("../../../../../../../../../dev/zero", ["base: there is no file"]),
        ("x" * 5000, ["base: there is no file"]),
        ("[a, b]", ["base: ['a', 'b'] is not valid"]),
        ("!!python/name:os.system x", ["line 1"]),
        ("odd.yaml", ["odd.yaml: unknown key env.num_env"]),
    ],
)
def test_a_base_that_cannot_be_used_is_one_line(base: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").write_text("base: some.yaml\n")
    (tmp_path / "odd.yaml").write_text("env: {num_env: 3}\n")
    for number in range(1, 5):
        (tmp_path / f"f{number}.yaml").write_text(f"base: f{number + 1}.yaml\n" if number < 4 else "env: {seed: 1}\n")
    with pytest.raises(UsageError) as caught:
        load(tmp_path, f"base: {base}\nenv: {{seed: 3}}\n")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "flag", "value"),
    [
        ("impala", "--clip-range", "0.1"),
        ("impala", "--backend", "gloo"),
        ("ppo", "--num-slots", "8"),
        ("a2c", "--batch-size", "64"),
    ],
)
def test_a_flag_for_what_an_algorithm_does_not_have_is_refused(
    algorithm: str, flag: str, value: str, tmp_path: Path
) -> None:
    done = rlcb_here("train", algorithm, flag, value, "--output-dir", tmp_path / "run")
    done.assert_one_line_error(2, flag, algorithm)
    assert not (tmp_path / "run").exists()


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
    rlcb_here("train", "ppo", "--config", bad).assert_one_line_error(2, "bad.yaml")
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
    "optimizer": ("sgd", None),
    "rms_eps": (0, -1, float("nan")),
    "rms_decay": (-0.1, 1, float("nan")),
}
OUT_OF_RANGE_IN_IMPALA = {
    "vtrace_clip_rho_threshold": (-1, float("nan"), float("inf"), "high"),
    "vtrace_clip_c_threshold": (-0.1, None),
    "vtrace_clip_pg_rho_threshold": (-1, float("inf")),
    "ent_coef": (-0.1, float("inf")),
    "max_grad_norm": (0, -40),
    "num_learners": (0, -1, 1.5, 2000),
    "num_slots": (0, -1, "many"),
    "policy_update_frequency": (0, -1, None),
}
CASES = [
    (algorithm, key, value)
    for algorithm, table in (("ppo", OUT_OF_RANGE), ("impala", OUT_OF_RANGE_IN_IMPALA))
    for key, values in table.items()
    for value in values
]


@pytest.mark.parametrize(("algorithm", "key", "value"), CASES)
def test_values_out_of_range_name_the_flag_and_the_range(algorithm: str, key: str, value: object) -> None:
    assert len(CASES) >= 40
    with pytest.raises(UsageError) as caught:
        build_config(None, {key: (flag_of(key), value)}, algorithm=algorithm)
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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_key_has_one_flag_and_one_home(algorithm: str) -> None:
    keys = [key for _, key, _ in fields(algorithm)]
    assert len(set(keys)) == len(keys)
    assert len({flag_of(key) for key in keys}) == len(keys)
    without = set(ALGORITHMS[algorithm].without)
    assert set(TIMED_KEYS) - without <= set(keys) <= set(all_keys()) - without
    assert all(field.description for _, _, field in fields(algorithm))
    aliases = ALGORITHMS[algorithm].aliases
    assert set(aliases.values()) <= set(keys)
    assert not set(aliases) & set(all_keys())


def test_the_documented_scripts_have_flags_for_keys_that_exist() -> None:
    assert set(TIMED_KEYS) < set(FIXED_KEYS) <= {key for _, key, _ in fields("ppo")}
    assert set(all_keys()) == {key for algorithm in ALGORITHMS for _, key, _ in fields(algorithm)}


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "a3c", "impala"])
def test_automatic_workers_divide_the_total_of_the_shipped_file(algorithm: str) -> None:
    file = ROOT / "config" / f"{algorithm}_parallel.yaml"
    config = build_config(file, {"num_workers": ("--num-workers", "auto")}, mode="parallel", algorithm=algorithm)
    assert (config.env.num_envs, config.parallel.num_workers, config.parallel.num_envs_per_worker) == (32, "auto", None)
