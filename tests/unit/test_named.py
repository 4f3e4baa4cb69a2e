"""Configurations and suites by name: the same from every folder, listed, printed, and wrong names answered."""

from pathlib import Path

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb.config import named
from rlcb.config.load import build_config
from rlcb.config.yaml_file import read_yaml
from rlcb.errors import UsageError
from rlcb.run.request import new_config
from rlcb.suite.settings import build_suite, read_settings

CONFIGS = sorted(path.stem for path in (ROOT / "config").glob("*.yaml"))
SUITES = sorted(path.stem for path in (ROOT / "config" / "suites").glob("*.yaml"))


def test_every_file_has_a_name_of_its_own_and_describes_itself() -> None:
    assert (list(named.configs()), list(named.suites())) == (CONFIGS, SUITES)
    assert not set(CONFIGS) & set(SUITES)
    for file in (*named.configs().values(), *named.suites().values()):
        words = named.description_of(file)
        assert 20 < len(words) < 120, (file, words)
        assert words[-1] not in ".:", words


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("# One, for any machine. Every key is explained.\nenv:\n", "One, for any machine"),
        ("# After Cobbe et al. 2020, easy: few levels\n", "After Cobbe et al. 2020, easy"),
        ("# Two lines\n# make one:\n#   rlcb benchmark\n", "Two lines make one"),
        ("# What changes? This.\n", "What changes?"),
        ("env: {}  # none\n", ""),
    ],
)
def test_a_description_is_the_first_sentence_of_the_first_comment(text: str, description: str, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(text)
    assert named.description_of(tmp_path / "file.yaml") == description


def test_the_list_has_every_name_with_its_description() -> None:
    done = rlcb_here("configs")
    assert (done.returncode, done.stderr) == (0, "")
    configs, suites = done.stdout.split("Suites, for rlcb benchmark --suite NAME:\n")
    listed = {"".join(line.split()[:1]): line for line in (configs + suites).splitlines() if line.startswith("  ")}
    assert list(listed) == [*CONFIGS, *SUITES]
    assert listed["quick"].endswith("  A first comparison in about five minutes on two cores")
    assert f"Files: {ROOT / 'config'}" in done.stdout


@pytest.mark.parametrize("name", ["ppo_paper", "quick"])
def test_a_name_prints_its_file_as_it_is(name: str) -> None:
    done = rlcb_here("configs", name)
    assert done.stdout == {**named.configs(), **named.suites()}[name].read_text()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_printed_configuration_is_the_same_in_another_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(rlcb_here("configs", name).stdout)
    algorithm, mode = name.split("_", 1)[0], "parallel" if "_parallel" in name else "sequential"
    copy = build_config(tmp_path / "mine.yaml", {}, mode=mode, algorithm=algorithm)
    assert copy == build_config(ROOT / "config" / f"{name}.yaml", {}, mode=mode, algorithm=algorithm)


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_the_same_in_another_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"device": ("--device", "cpu")}
    here = build_suite(ROOT / "config" / "suites" / f"{name}.yaml", flags)
    monkeypatch.chdir(tmp_path)
    file = named.find_suite(name)
    assert file == ROOT / "config" / "suites" / f"{name}.yaml"
    assert build_suite(file, flags) == here
    assert read_settings(file).config in (None, "ppo_paper")


def test_the_default_is_the_packages_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    expected = new_config("ppo", "parallel", None, {})
    assert named.default_file("ppo", "parallel") == Path("config/ppo_parallel.yaml")
    monkeypatch.chdir(tmp_path)
    assert named.default_file("ppo", "parallel") == ROOT / "config" / "ppo_parallel.yaml"
    assert new_config("ppo", "parallel", None, {}) == expected
    assert capsys.readouterr().err == ""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "ppo_parallel.yaml").write_text("training: {gamma: 0.5}\n")
    assert new_config("ppo", "parallel", None, {}) == expected
    assert new_config("ppo", "parallel", None, {}) == expected
    said = capsys.readouterr().err
    assert said.count("note: config/ppo_parallel.yaml is not used without --config") == 1
    assert new_config("ppo", "parallel", named.find_config("config/ppo_parallel.yaml"), {}).training.gamma == 0.5


def test_a_name_is_the_packages_and_a_path_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("ppo_paper", "mine", "ppo_paper.yaml"):
        (tmp_path / file).write_text("training: {gamma: 0.5}\n")
    assert named.find_config("ppo_paper") == ROOT / "config" / "ppo_paper.yaml"
    for path in ("./ppo_paper", "mine", "ppo_paper.yaml", str(tmp_path / "mine")):
        assert read_yaml(named.find_config(path)) == {"training": {"gamma": 0.5}}
    assert named.find_config("other.yaml") == Path("other.yaml")  # whoever reads it says what is wrong


@pytest.mark.parametrize(
    ("find", "given", "words"),
    [
        (named.find_config, "config/ppo_paper.yaml", ["paper.yaml: no such file", "--config ppo_paper"]),
        (named.find_config, "ppo_paper.yml", ["ppo_paper.yml", "--config ppo_paper"]),
        (named.find_suite, "config/suites/quick.yaml", ["no such file", "--suite quick"]),
        (named.find_config, "ppo_papr", ["'ppo_papr' is neither", "did you mean ppo_paper?"]),
        (named.find_config, "zzz", ["'zzz' is neither", "rlcb configs"]),
        (named.find_config, "quick", ["quick: is a suite: rlcb benchmark --suite quick"]),
        (named.find_suite, "ppo_paper", ["ppo_paper: is a configuration", "--config"]),
    ],
)  # fmt: skip
def test_what_is_not_there_is_answered_with_what_is(
    find: object, given: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert callable(find)
    with pytest.raises(UsageError) as caught:
        find(given)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "ppo", "--config", "config/ppo_paper.yaml"], ["config/ppo_paper.yaml", "--config ppo_paper"]),
        (["limits", "ppo", "--config", "ppo_papr"], ["ppo_papr", "did you mean ppo_paper?"]),
        (["tune", "ppo", "--config", "ppo_papr"], ["ppo_papr", "did you mean ppo_paper?"]),
        (["benchmark", "--suite", "quik"], ["quik", "did you mean quick?"]),
        (["benchmark", "--duration", "1h", "--config", "ppo_papr"], ["--config: 'ppo_papr'", "ppo_paper?"]),
        (["train", "ppo", "--config", ""], ["--config", "the value is empty"]),
        (["configs", "ppo_papr"], ["'ppo_papr'", "did you mean ppo_paper?"]),
        (["configs", "zzz"], ["'zzz'", "valid: a2c_gpu, "]),
    ],
)  # fmt: skip
def test_a_wrong_name_is_one_line(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    rlcb_here(*arguments, folder=tmp_path).assert_one_line_error(2, *words)


def test_a_config_in_a_suite_file_is_answered_with_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("duration_hours: 1\nvariants: {a: {}, b: {config: ppo_papr}}\n")
    done = rlcb_here("benchmark", "--suite", "mine.yaml", "--dry-run", folder=tmp_path)
    done.assert_one_line_error(2, "mine.yaml: variants.b.config: 'ppo_papr'", "did you mean ppo_paper?")


def test_banners_name_the_files(tmp_path: Path) -> None:
    done = rlcb_here("train", "ppo", "--config", "ppo_paper", "--device", "cpu", "--dry-run", folder=tmp_path)
    assert f"\nConfig: {ROOT}/config/ppo_paper.yaml\n" in done.stdout
    done = rlcb_here("benchmark", "--suite", "quick", "--dry-run", folder=tmp_path)
    assert f"\nSuite: {ROOT}/config/suites/quick.yaml\n" in done.stdout
    assert f"\nConfigs: {ROOT}/config/ppo_sequential.yaml, {ROOT}/config/ppo_parallel.yaml\n" in done.stdout
    done = rlcb_here("benchmark", "--duration", "1h", "--dry-run")
    assert "\nSuite: from flags\nConfigs: config/ppo_sequential.yaml, config/ppo_parallel.yaml\n" in done.stdout


def test_the_version_says_what_runs_and_where() -> None:
    done = rlcb_here("--version")
    first, packages, program, configurations = done.stdout.splitlines()
    assert first.startswith("rlcb 0.")
    assert packages.startswith("Python 3.")
    assert ", torch " in packages
    assert program == f"program: {ROOT / 'src' / 'rlcb'}"
    assert configurations == f"configurations: {ROOT / 'config'}"
