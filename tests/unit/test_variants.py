"""Variants of a suite: what they are crossed with, what is refused, how their runs are grouped and named."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from helpers.run_directories import write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.records import ComparableSet
from rlcb.analysis.status import look
from rlcb.config.load import build_config
from rlcb.config.registry import ALGORITHMS, MODES, Kind
from rlcb.config.schema import Config
from rlcb.config.yaml_file import read_yaml
from rlcb.errors import UsageError
from rlcb.signals import StopRequest
from rlcb.suite import benchmark as benchmark_module
from rlcb.suite.benchmark import benchmark
from rlcb.suite.directory import config_path, runs_of, store, stored
from rlcb.suite.extension import continued
from rlcb.suite.settings import Suite, build_suite

TWO = "variants:\n  base:\n  lowent: {ent_coef: 0.001}\n"


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the usual config files are."""
    monkeypatch.chdir(ROOT)


def flags(**values: Any) -> dict[str, tuple[str, Any]]:
    return {key: (f"--{key}", value) for key, value in values.items()}


def make_suite(folder: Path, text: str, **given: Any) -> Suite:
    """The suite of a file with this text, and an hour for each run."""
    folder.mkdir(exist_ok=True)
    file = folder / "mine.yaml"
    file.write_text(f"duration_hours: 1\n{text}\n")
    return build_suite(file, flags(**given))


def refusal(folder: Path, text: str, **given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        make_suite(folder, text, **given)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- what is planned


def test_variants_are_crossed_with_everything_and_have_folders_and_configs_of_their_own(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, f"seeds: [3, 1]\ngames: [CartPole-v1]\noverrides: {{ent_coef: 0.5}}\n{TWO}")
    runs = runs_of(suite.settings, Path("out"))
    assert [run.name for run in runs] == [
        f"ppo {mode} {variant} CartPole-v1 seed {seed}"
        for seed in (3, 1)
        for mode in MODES
        for variant in ("base", "lowent")
    ]
    assert runs[1].path == Path("out/CartPole-v1/ppo_sequential_lowent/seed_3")
    assert runs[1].final_checkpoint.name == "ppo_sequential_final.pt"  # as every sequential run of PPO calls it
    assert config_path(Path("out"), runs[1].kind) == Path("out/configs/ppo_sequential_lowent.yaml")
    for kind, config in suite.configs.items():
        assert config.logging.variant == kind.variant
        assert config.ppo.ent_coef == {"base": 0.5, "lowent": 0.001}[kind.variant]
    store(tmp_path / "out", suite)
    assert stored(tmp_path / "out") == suite


def test_no_part_of_a_folders_name_contains_what_separates_the_parts() -> None:
    assert not [name for name in (*ALGORITHMS, *MODES) if "_" in name]


def test_a_suite_without_variants_is_what_it_was(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, "seeds: 1\nvariants:")
    assert [kind.label for kind in suite.configs] == ["ppo_sequential", "ppo_parallel"]
    assert {config.logging.variant for config in suite.configs.values()} == {None}
    store(tmp_path / "out", suite)
    assert "variants" not in read_yaml(tmp_path / "out" / "suite.yaml")
    for kind in suite.configs:  # as an earlier version wrote it, which knew no variants
        file = config_path(tmp_path / "out", kind)
        file.write_text(re.sub(r"\n *variant: .*", "", file.read_text()))
    assert stored(tmp_path / "out") == suite


def test_a_config_file_that_names_a_variant_does_not_make_one(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("logging: {variant: other}\n")
    suite = make_suite(tmp_path, f"config: {tmp_path / 'own.yaml'}")
    assert {config.logging.variant for config in suite.configs.values()} == {None}


def test_a_variant_is_left_out_where_it_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variants = (
        "variants: {base: {}, tight: {clip_range: 0.1}, two: {num_workers: 2}, both: {clip_range: 0.3, gamma: 0.9}}"
    )
    suite = make_suite(tmp_path, f"algorithms: [ppo, a2c]\n{variants}")
    assert [kind.label for kind in suite.configs] == [
        *("ppo_sequential_base", "ppo_sequential_tight", "ppo_sequential_both"),
        *("ppo_parallel_base", "ppo_parallel_tight", "ppo_parallel_two", "ppo_parallel_both"),
        *("a2c_sequential_base", "a2c_sequential_both"),
        *("a2c_parallel_base", "a2c_parallel_two", "a2c_parallel_both"),
    ]
    assert suite.configs[Kind("a2c", "parallel", "both")].training.gamma == 0.9
    said = capsys.readouterr().err
    assert "variant tight: not run for a2c sequential, a2c parallel: clip_range would change nothing there" in said
    assert "variant two: not run for ppo sequential, a2c sequential: num_workers would change nothing there" in said
    assert said.count("32 environments in total") == 2  # once for each algorithm, not for each variant


def test_a_variant_can_have_a_config_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("training: {n_steps: 16, gamma: 0.5}\n")
    text = f"modes: sequential\nvariants: {{base: {{}}, own: {{config: {tmp_path / 'own.yaml'}, gamma: 0.7}}}}"
    training = make_suite(tmp_path, text).configs[Kind("ppo", "sequential", "own")].training
    assert (training.n_steps, training.gamma) == (16, 0.7)
    message = refusal(tmp_path, "variants: {own: {config: 3}}")
    assert "variants.own.config: 3 is not valid; must be a config file" in message


def test_the_shipped_example_loads() -> None:
    suite = build_suite(ROOT / "config" / "suites" / "variants.yaml", {})
    assert len(runs_of(suite.settings, Path("out"))) == 12
    both = suite.configs[Kind("ppo", "sequential", "both")]
    assert (both.ppo.ent_coef, both.training.n_epochs) == (0.02, 2)


# --- what is refused


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("variants: [a, b]", ["variants: ['a', 'b'] is not valid", "names"]),
        ("variants: {a: 3}", ["variants: 3 is not valid", "its config keys"]),
        ("variants: {64: {num_envs: 64}}", ["line 2: key 64 is not text"]),
        ("variants: {low_ent: {gamma: 0.9}}", ["variants: 'low_ent' is not valid", "letters, digits and -"]),
        ("variants: {../up: {gamma: 0.9}}", ["variants: '../up' is not valid"]),
        ("variants: {-a: {gamma: 0.9}}", ["variants: '-a' is not valid", "- (not first)"]),
        ("variants: {'': {gamma: 0.9}}", ["variants: '' is not valid"]),
        ("variants: {Low: {gamma: 0.9}, low: {gamma: 0.8}}", ["Low and low differ only in upper and lower case"]),
        ("variants: {a: {clip_rang: 0.1}}", ["variants.a: unknown key clip_rang", "did you mean clip_range?"]),
        ("variants: {a: {seed: 3}}", ["variants.a.seed: in a suite, this is set by seeds"]),
        ("variants: {a: {variant: b}}", ["variants.a.variant: in a suite, this is set by variants"]),
        ("overrides: {variant: b}", ["overrides.variant: in a suite, this is set by variants"]),
        ("variants: {a: {num_slots: 9}}", ["variants.a.num_slots: belongs to impala, but this suite has ppo"]),
        ("variants: {a: {gamma: 2}}", ["variants.a.gamma: 2 is not valid; must be a number from 0 to 1"]),
        ("variants: {a: {batch_size: 100}}", ["variants.a.batch_size: 100 does not divide"]),
        ("variants: {a: {gamma: 0.9}, b: {gamma: 0.9}}", ["variants: a and b are identical"]),
        ("variants: {base: {}, b: {ent_coef: 0.003}}", ["variants: base and b are identical"]),
        ("algorithms: [ppo, a2c]\nvariants: {a: {clip_range: 0.1}}", ["variants: none applies to a2c", "'base: {}'"]),
        ("variants: {a: {gamma: 0.9}, a: {gamma: 0.8}}", ["given twice"]),
    ],
)
def test_a_mistake_in_variants_is_named_with_what_would_be_valid(tmp_path: Path, text: str, words: list[str]) -> None:
    message = refusal(tmp_path, text)
    for word in (str(tmp_path / "mine.yaml"), *words):
        assert word in message


def test_a_flag_that_a_variant_would_overrule_is_refused_and_flags_choose_among_variants(tmp_path: Path) -> None:
    text = f"{TWO}  high: {{ent_coef: 0.1}}"
    message = refusal(tmp_path, text, ent_coef=0.2)
    assert message.startswith("--ent_coef: variants.lowent and variants.high of the suite file set it as well; omit")
    (tmp_path / "own.yaml").write_text("training: {gamma: 0.5}\n")
    own = f"variants: {{base: {{}}, own: {{config: {tmp_path / 'own.yaml'}}}}}"
    assert "--config: variants.own of" in refusal(tmp_path, own, config="config/ppo_sequential.yaml")
    chosen = make_suite(tmp_path, text, variants=["high", "base"], gamma=0.9)
    assert list(chosen.settings.variants) == ["high", "base"]
    assert {config.training.gamma for config in chosen.configs.values()} == {0.9}
    assert make_suite(tmp_path, text, variants=["base"], ent_coef=0.2).settings.overrides == {"ent_coef": 0.2}
    assert "--variants: 'hig' does not exist; did you mean high?" in refusal(tmp_path, text, variants=["hig"])
    assert "--variants: base is given twice" in refusal(tmp_path, text, variants=["base", "base"])
    assert "--variants: 'a' does not exist; the suite file has no variants" in refusal(tmp_path, "", variants=["a"])


def test_variants_that_are_the_same_for_one_algorithm_alone_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_suite(tmp_path, "algorithms: [ppo, a2c]\nvariants: {base: {}, fast: {learning_rate: 0.002}}")
    assert "variants base and fast are identical for a2c sequential, a2c parallel" in capsys.readouterr().err


def test_a_suite_continues_only_with_the_variants_it_began_with(tmp_path: Path) -> None:
    store(tmp_path / "out", make_suite(tmp_path, TWO))
    planned = stored(tmp_path / "out")
    continued(tmp_path, planned, make_suite(tmp_path, TWO))
    other = make_suite(tmp_path, f"{TWO.replace('0.001', '0.002')}  more: {{gamma: 0.9}}")
    with pytest.raises(UsageError) as caught:
        continued(tmp_path, planned, other)
    assert "variants.lowent {'ent_coef': 0.001} there and {'ent_coef': 0.002} here" in str(caught.value)
    assert "more" not in str(caught.value)  # that one could be added


def test_variants_do_not_differ_in_what_a_measurement_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(config: Config, mode: str) -> Config:
        measured.append(mode)
        return config.changed("hardware", precision=("bf16", "fp32")[len(measured) % 2])

    monkeypatch.setattr(benchmark_module, "with_precision", measure)
    suite = make_suite(tmp_path, f"overrides: {{precision: auto}}\n{TWO}  own: {{precision: fp32, gamma: 0.9}}")
    agreed = benchmark_module._agreed(tmp_path / "out", suite).configs
    assert measured == ["sequential", "parallel"]
    for mode, precision in (("sequential", "fp32"), ("parallel", "bf16")):
        assert {agreed[Kind("ppo", mode, name)].hardware.precision for name in ("base", "lowent")} == {precision}


def test_a_dry_run_shows_the_variants_and_what_they_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"modes: sequential\nseeds: 1\ngames: CartPole-v1\nduration_hours: 1\n{TWO}")
    assert benchmark(tmp_path / "out", file, {}, dry_run=True, stop=StopRequest()) == 0
    said = capsys.readouterr().out
    assert "Variants:\n  base: as configured\n  lowent: ent_coef 0.001\n" in said
    assert "ppo_sequential_lowent: 32 environments" in said
    assert "[2/2] ppo sequential lowent CartPole-v1 seed 1: would be started" in said


# --- a run knows its variant


def test_a_run_is_given_a_variant_by_a_flag_or_a_file_or_has_none(tmp_path: Path) -> None:
    assert build_config(None, {}).logging.variant is None
    there = ("train", "ppo", "--env", "CartPole-v1", "--output-dir", tmp_path / "run", "--dry-run")
    assert "\nVariant: lowent\n" in rlcb_here(*there, "--variant", "lowent").stdout
    assert "Variant" not in rlcb_here(*there).stdout
    rlcb_here(*there, "--variant", "low_ent").assert_one_line_error(2, "--variant: 'low_ent'", "letters, digits and -")


# --- how runs are grouped and named


def one_set(*paths: Path) -> ComparableSet:
    (one,) = compare(load_runs(paths, lambda _: None)).sets
    return one


def write_variants(folder: Path) -> Path:
    """Two variants in both modes with three seeds, and runs without one, in no suite's directory."""
    for seed in (1, 2, 3):
        for number, (name, coefficient, reward) in enumerate((("base", 0.01, 8.0), ("low", 0.001, 5.0))):
            given: dict[str, Any] = {"seed": seed, "variant": name, "ent_coef": coefficient, "rewards": (3.0, reward)}
            write_run(folder / f"s{number}{seed}", fps=1000.0 + 1000 * number + seed, **given)
            write_run(folder / f"p{number}{seed}", mode="parallel", workers=4, fps=3000.0 + seed, **given)
        write_run(folder / f"none{seed}", seed=seed)
    return folder


def test_runs_are_grouped_by_variant_wherever_they_are(tmp_path: Path) -> None:
    one = one_set(write_variants(tmp_path))
    assert {group.label: (group.variant, group.seeds) for group in one.groups} == {
        "PPO Sequential": ("", (1, 2, 3)),  # with the settings of base, but no variant is invented for it
        "PPO Sequential · base": ("base", (1, 2, 3)),
        "PPO Sequential · low": ("low", (1, 2, 3)),
        "PPO Parallel (4 workers) · base": ("base", (1, 2, 3)),
        "PPO Parallel (4 workers) · low": ("low", (1, 2, 3)),
    }
    pair = one.pair("final_reward", "PPO Sequential · base", "PPO Sequential · low")
    assert pair is not None
    assert pair.winner == "PPO Sequential · base"
    speedups = {group.label: group.speedup.baseline for group in one.groups if group.speedup}
    assert speedups == {
        f"PPO Parallel (4 workers) · {name}": f"PPO Sequential · {name}" for name in ("base", "low")
    }  # although the other variant's sequential runs are faster


def test_scores_over_games_are_those_of_each_variant(tmp_path: Path) -> None:
    for seed in (1, 2):
        for game in ("coinrun", "starpilot"):
            for name, coefficient in (("base", 0.01), ("low", 0.001)):
                given: dict[str, Any] = {"name": f"procgen-{game}-v0", "variant": name, "ent_coef": coefficient}
                write_run(tmp_path / f"{game}{name}{seed}", seed=seed, **given)
    (scores,) = compare(load_runs([tmp_path], lambda _: None)).game_scores
    assert scores.main is not None
    assert [group.group for group in scores.main.groups] == ["PPO Sequential · base", "PPO Sequential · low"]


def test_one_variant_with_two_settings_is_two_groups(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / f"a{seed}", seed=seed, variant="low", gamma=0.9)
        write_run(tmp_path / f"b{seed}", seed=seed, variant="low", gamma=0.8)
    assert [group.label for group in one_set(tmp_path).groups] == [
        "PPO Sequential · low, gamma 0.8",
        "PPO Sequential · low, gamma 0.9",
    ]


def test_every_file_of_a_comparison_names_the_variants_and_what_they_change(tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = rlcb_here("compare", write_variants(tmp_path / "runs"), "--output", output)
    assert done.returncode == 0, done.stderr
    text = (output / "comparison_report.txt").read_text()
    assert "\n  PPO Sequential · low: ent_coef 0.001\n" in text
    assert "\n  PPO Parallel (4 workers) · base: ent_coef 0.01\n" in text
    (one,) = json.loads((output / "comparison.json").read_text())["sets"]
    assert one["variants"]["PPO Sequential · low"] == {"ent_coef": 0.001}
    assert "PPO Sequential" not in one["variants"]
    assert {group["label"]: group["variant"] for group in one["groups"]}["PPO Sequential · low"] == "low"
    with (output / "runs.csv").open() as file:
        rows = {Path(row["run"]).name: row for row in csv.DictReader(file)}
    assert (rows["s11"]["variant"], rows["s11"]["group"]) == ("low", "PPO Sequential · low")
    assert rows["none1"]["variant"] == ""
    with (output / "comparison.csv").open() as file:
        assert {row["variant"] for row in csv.DictReader(file)} == {"", "base", "low"}
    page = (output / "report.html").read_text()
    assert 'id="variants"' in page
    assert "Settings in which variants of an algorithm and mode differ." in page
    assert "PPO Sequential · low" in page
    assert "| PPO Sequential · low | 0.001 |" in (output / "report.md").read_text()


def test_a_comparison_without_variants_says_nothing_of_them(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"run{seed}", seed=seed)
    done = rlcb_here("compare", tmp_path / "runs", "--output", tmp_path / "out")
    assert "ariant" not in done.stdout
    assert 'id="variants"' not in (tmp_path / "out" / "report.html").read_text()


# --- status


def planned_suite(path: Path, variants: Any) -> Path:
    """A suite's directory without runs."""
    (path / "configs").mkdir(parents=True)
    plan = {"algorithms": ["ppo"], "modes": ["sequential", "parallel"], "seeds": [1], "games": ["CartPole-v1"]}
    (path / "suite.yaml").write_text(json.dumps({**plan, "total_timesteps": 1000, "variants": variants}))
    return path


def test_status_shows_planned_runs_of_every_variant(tmp_path: Path) -> None:
    suite = planned_suite(tmp_path / "suite", {"base": {}, "two": {"num_workers": 2}})
    write_run(suite / "CartPole-v1" / "ppo_parallel_two" / "seed_1", mode="parallel", workers=2, variant="two")
    snapshot = look(tmp_path, 0.0)
    assert {run.run: (run.variant, run.state) for run in snapshot.runs} == {
        "suite/CartPole-v1/ppo_sequential_base/seed_1": ("base", "waiting"),
        "suite/CartPole-v1/ppo_parallel_base/seed_1": ("base", "waiting"),
        "suite/CartPole-v1/ppo_parallel_two/seed_1": ("two", "finished"),
    }
    said = rlcb_here("status", tmp_path).stdout
    assert "PPO sequential · base" in said
    assert "PPO parallel · two" in said


@pytest.mark.parametrize("variants", [["a"], {"../../up": {}}, {"a_b": {}}, {"a": 3}, 7])
def test_status_refuses_a_plan_whose_variants_are_damaged(tmp_path: Path, variants: Any) -> None:
    planned_suite(tmp_path / "suite", variants)
    assert look(tmp_path, 0.0).left_out == [
        f"left out: {tmp_path}/suite/suite.yaml: damaged: its variants are not names with keys"
    ]
