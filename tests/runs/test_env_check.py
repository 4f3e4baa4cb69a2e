"""`rlcb doctor --env`: environments that are broken in one way each, and some that are not."""

import re
from pathlib import Path

import psutil
import pytest

from helpers import broken_envs
from helpers.processes import HELPERS, ROOT, Finished, python
from rlcb.config.environment import EnvConfig
from rlcb.envs import check
from rlcb.envs.conformity import Finding

LINES = ["Environment", "Spaces", "Observations", "Rewards", "Episodes", "Seeds", "Copies", "Resuming", "Processes",
         "Speed"]  # fmt: skip
PLACE = r"\(.*broken_envs\.py, line \d+\)"
# Those in which training cannot work: the exit code and the line that says why, the last finding.
FAILURES = {
    "Shape": (1, r"✗ Observations: an observation has shape \(3,\), but .* has \(2,\), first at step 40 of episode 1"),
    "Fractions": (
        1,
        r"✗ Observations: pictures are float64, but .* has uint8; .* at the reset of episode 1",
    ),
    "Part": (
        1,
        r"✗ Observations: 'key': '3' is not in .* Discrete\(3\), first at step 20 of episode 1",
    ),
    "Unseen": (1, r"✗ Observations: an observation is not finite; .* first at step 30 of episode 1"),
    "Late": (1, r"✗ Rewards: a reward is nan; .* first at step 490 of episode 1"),
    "Huge": (1, r"✗ Rewards: a reward is 1e\+39; .* first at step 1 of episode 1"),
    "Nothing": (1, r"✗ Rewards: a reward is of type NoneType, must be a float, first at step 1 of episode 1"),
    "Four": (7, r"✗ Episodes: step must return observation, reward, terminated, truncated and a dict; at step 1 of .*"),
    "Raises": (7, rf"✗ Episodes: step 31 of episode 1 raised ZeroDivisionError: division by zero {PLACE}"),
    "Unmade": (7, rf"✗ Environment: OSError: no simulator {PLACE}"),
    "Several": (
        2,
        r"✗ Environment: needs a discrete action space or a Box .*, but has MultiDiscrete\(\[2 2\]\)",
    ),
    "Ends": (1, r"✗ Episodes: the process was ended with exit code 9"),
    "Crashes": (1, rf"✗ Episodes: the process was killed by SIGABRT in step {PLACE}"),
}
# Those in which it can: the only lines with a warning, but for that of the speed, which other programs can disturb.
WARNINGS = {
    "Fine": [],
    "Outside": [r"! Observations: an observation is outside its space: 1.5 at index 0, .* step 40 of episode 1"],
    "Double": [r"! Observations: observations are float64, but .* has float32; they are converted.*"],
    "Small": [r"! Network: .*\(7, 7, 3\) are too small for the default; use --network impala"],
    "Random": [
        r"! Seeds: not reproducible: .* the same seed .* differ from step 17 on \(rewards .*\); .*np_random.*",
        r"! Resuming: not exact: restored copies differ from step \d+ on .*",
    ],
    "Levels": [r"! Resuming: not exact: restored copies differ from step 1 on \(rewards .*"],
    "Shared": [r"! Copies: two in a process influence each other: .* different from step 2 on \(rewards 2 and 3\); .*"],
    "Number": [r"! Processes: in (\d+) of \1 the same seed gives other episodes .*"],
    "Endless": [r"! Episodes: none ended in [\d,]+ steps .*max_episode_steps.*"],
    "Limit": [r"! Episodes: all 10 terminated after exactly 50 steps; .*truncated.*"],
    "Whole": [r"! Episodes: terminated is of type int, must be a bool, first at step 1 of episode 1"],
    "Alone": [rf"! Processes: \d+ of \d+ cannot make .* the simulator is in use {PLACE}; .*--mode sequential"],
}


def doctor(*words: str, cwd: Path = HELPERS, **variables: str) -> Finished:
    return python("-m", "rlcb", "doctor", *words, cwd=cwd, env={"RLCB_IMPORT": "", **variables})


def findings(done: Finished) -> list[str]:
    return done.stdout.splitlines()[:-1]


def test_each_of_them_is_checked() -> None:
    kinds = {kind.__name__ for kind in broken_envs.Fine.__subclasses__()}
    assert kinds | {"Fine"} == {*FAILURES, *WARNINGS, "Hangs", "Slow"}


@pytest.mark.parametrize("name", FAILURES)
def test_what_makes_training_fail_is_the_last_finding(name: str) -> None:
    code, line = FAILURES[name]
    done = doctor("--env", f"broken_envs:{name}-v0")
    assert (done.returncode, done.stderr) == (code, "")
    (found,) = (one for one in findings(done) if one.startswith("✗"))
    assert re.fullmatch(line, found), found
    assert done.stdout.splitlines()[-1].startswith(f"Training in {name}-v0 would fail")
    assert "Seeds" not in done.stdout


@pytest.mark.parametrize("name", WARNINGS)
def test_what_training_can_live_with_is_a_warning(name: str, tmp_path: Path) -> None:
    done = doctor("--env", f"{name}-v0", "--import", "broken_envs", BROKEN_ENVS_LOCK=str(tmp_path / "lock"))
    assert (done.returncode, done.stderr) == (0, "")
    found = [one for one in findings(done) if one[0] != "✓" and "Speed" not in one]
    assert len(found) == len(WARNINGS[name]), done.stdout
    for one, line in zip(found, WARNINGS[name], strict=True):
        assert re.fullmatch(line, one), one
    network = " --network impala" if name == "Small" else ""
    command = f"rlcb train ppo --env {name}-v0 --import broken_envs{network} --total-timesteps 100000"
    assert done.stdout.splitlines()[-1].endswith(command)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "coinrun"])
def test_environments_that_are_known_to_work_pass(name: str) -> None:
    done = doctor("--env", name, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [one.split()[1].rstrip(":") for one in findings(done)] == LINES
    assert [one for one in findings(done)[:-1] if one[0] != "✓"] == []
    assert re.search(r"one copy makes [\d,]+ steps/s, \d+ processes with a copy each [\d,]+ steps/s", done.stdout)


def test_one_that_hangs_is_reported_and_ended_with_all_that_it_started(tmp_path: Path) -> None:
    done = doctor("--env", "broken_envs:Hangs-v0", BROKEN_ENVS_LOCK=str(tmp_path / "pid"))
    assert (done.returncode, done.stderr) == (1, "")
    assert re.fullmatch(rf"✗ Episodes: hangs in step {PLACE}: no answer for 20 s", findings(done)[-1])
    started = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE


def test_a_module_that_hangs_is_reported(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text("import time\n\ntime.sleep(600)\n")
    done = doctor("--env", "stuck:Any-v0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert re.fullmatch(r"✗ Environment: hangs in <module> \(.*stuck\.py, line 3\): .*", findings(done)[-1])


def test_one_that_is_slow_is_checked_as_far_as_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HELPERS)
    monkeypatch.setattr(check, "_FIRST_SECONDS", 6.0)
    monkeypatch.setenv("RLCB_MODULE_FOLDER", str(HELPERS))
    found = [one for one in check.check(EnvConfig(name="Slow-v0"), ["broken_envs"]) if isinstance(one, Finding)]
    assert found[-1].mark == "!"
    assert "too slow to be checked in a minute" in str(found[-1])
    assert not any(one.exit_code for one in found)


def test_wrong_input_is_one_line(tmp_path: Path) -> None:
    doctor("--env", "CartPol-v1").assert_one_line_error(2, "--env: unknown environment 'CartPol-v1'", "CartPole-v1")
    doctor("--env", "nowhere:Any-v0").assert_one_line_error(2, "--import nowhere: cannot be imported", str(HELPERS))
    doctor("--env", "broken_envs:Nowhere-v0").assert_one_line_error(2, "--env: unknown environment 'Nowhere-v0'")
    doctor("--env", "Fine-v0").assert_one_line_error(2, "--env: unknown environment 'Fine-v0'", "--import")
    doctor("--import", "broken_envs").assert_one_line_error(2, "--import broken_envs: needs --env")
    doctor("--env", "").assert_one_line_error(2, "--env: the value is empty")
    (tmp_path / "wrong.py").write_text("import json\n\njson.loads('')\n")
    wrong = doctor("--env", "wrong:Any-v0", cwd=tmp_path)
    wrong.assert_one_line_error(2, "--import wrong: cannot be imported", "JSONDecodeError", "wrong.py, line 3")


def test_a_package_that_an_environment_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "needy.py").write_text(
        "import gymnasium\n\n\nclass Needy(gymnasium.Env):\n    def __init__(self):\n"
        "        raise gymnasium.error.DependencyNotInstalled('box2d is not installed')\n\n\n"
        "gymnasium.register('Needy-v0', Needy)\n"
    )
    done = doctor("--env", "needy:Needy-v0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (6, "")
    assert findings(done)[-1].startswith("✗ Environment: DependencyNotInstalled: box2d is not installed")
