"""`import rlcb` in a script without a main guard: real runs, and what they leave in the caller's process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.processes import ROOT, Finished, rlcb, run, weights

SMALL = {"env": "CartPole-v1", "n_steps": 32, "batch_size": 128, "n_epochs": 1, "num_threads": 1}
FLAGS = [word for key, value in SMALL.items() for word in (f"--{key.replace('_', '-')}", str(value))]
STEPS = 2048

# No `if __name__ == "__main__"`: a worker that imported this file would start everything again.
SCRIPT = f"""
import json, rlcb
small = {SMALL!r}
seen = []
one = rlcb.train("ppo", total_timesteps={STEPS}, num_envs=8, output_dir="runs/one", quiet=True, on_update=seen.append, **small)
two = rlcb.train("ppo", "parallel", total_timesteps={STEPS}, num_workers=2, num_envs=4, output_dir="runs/two", quiet=True, **small)
three = rlcb.train("impala", "parallel", total_timesteps={STEPS}, num_actors=2, num_envs=4, output_dir="runs/three", quiet=True,
                   env="CartPole-v1", num_threads=1)
played = rlcb.evaluate(one, num_episodes=6, seed=5, quiet=True)
runs = rlcb.load_runs("runs")
compared = rlcb.compare(runs, output="compared", seed=3)
alone = rlcb.compare("runs/one", [two, "runs/three"], output=None, seed=3, reward_threshold=20)
json.dump({{
    "seen": seen,
    "runs": [[run.algorithm, run.mode, run.env, run.seed, run.num_workers, run.status, vars(run.metrics)]
             for run in (one, two, three)],
    "found": [[run.algorithm, run.mode, run.env, run.seed, run.num_workers, run.status, vars(run.metrics)] for run in runs],
    "played": [played.mean_reward, list(played.results[0].rewards), str(played.file), str(played.checkpoint)],
    "compared": compared.to_dict(), "verdict": compared.verdict, "report": str(compared.report), "text": str(compared),
    "alone": [alone.report, alone.files, alone.to_dict()["sets"][0]["threshold"], len(alone.comparison.sets[0].groups)],
}}, open("out.json", "w"))
"""  # noqa: E501


def script(folder: Path, code: str, timeout: float = 300) -> Finished:
    """Run a file with this code in a folder, as `python script.py`."""
    (folder / "script.py").write_text(code)
    return run([sys.executable, "script.py"], timeout, cwd=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calls")
    done = script(path, SCRIPT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr == ""
    return path


@pytest.fixture(scope="module")
def out(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


pytestmark = pytest.mark.xdist_group("python_calls")


def test_runs_are_what_their_files_say(folder: Path, out: dict[str, Any]) -> None:
    kinds = (("one", "ppo", "sequential", 1), ("two", "ppo", "parallel", 2), ("three", "impala", "parallel", 2))
    for (name, algorithm, mode, workers), found in zip(kinds, out["runs"], strict=True):
        path = folder / "runs" / name
        assert json.loads((path / "run.json").read_text())["mode"] == mode
        assert found[:6] == [algorithm, mode, "CartPole-v1", 42, workers, "finished"]
        stored = json.loads((path / "benchmark_metrics.json").read_text())
        metrics = found[6]
        assert metrics["total_timesteps"] == stored["total_timesteps"] >= STEPS
        assert metrics["average_fps"] == stored["average_fps"]
        assert metrics["final_reward"] == stored["performance"]["final_reward"]
    assert sorted(map(str, out["found"])) == sorted(map(str, out["runs"]))


def test_the_callback_gets_every_line_of_the_log(folder: Path, out: dict[str, Any]) -> None:
    log = folder / "runs" / "one" / "logs" / "PPO_Sequential" / "metrics.jsonl"
    assert out["seen"] == [json.loads(line) for line in log.read_text().splitlines()]
    assert len(out["seen"]) == STEPS // (8 * 32)


def test_an_evaluation_is_what_its_file_says(folder: Path, out: dict[str, Any]) -> None:
    mean, rewards, file, checkpoint = out["played"]
    assert file == "runs/one/checkpoints/ppo_sequential_final_evaluation.json"
    assert checkpoint == "runs/one/checkpoints/ppo_sequential_final.pt"
    (stored,) = json.loads((folder / file).read_text())["evaluations"]
    assert [mean, rewards, 5, 6] == [stored["mean_reward"], stored["rewards"], stored["seed"], stored["episodes"]]


def test_a_comparison_is_what_its_files_say(folder: Path, out: dict[str, Any]) -> None:
    assert out["compared"] == json.loads((folder / "compared" / "comparison.json").read_text())
    assert out["verdict"] == out["compared"]["verdict"]
    assert out["text"] + "\n" == (folder / "compared" / "comparison_report.txt").read_text()
    assert (folder / out["report"]).read_text().startswith("<!DOCTYPE html>")
    assert out["alone"] == [None, [], 20.0, 3]


def test_the_commands_do_the_same_bit_by_bit(folder: Path, tmp_path: Path) -> None:
    steps = ("--total-timesteps", str(STEPS))
    assert rlcb("train", "ppo", *FLAGS, *steps, "--num-envs", "8", "--output-dir", tmp_path / "one").returncode == 0
    workers = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "4", "--output-dir", tmp_path / "two")
    assert rlcb("train", "ppo", *FLAGS, *steps, *workers).returncode == 0
    for name, mode in (("one", "sequential"), ("two", "parallel")):
        file = f"{name}/checkpoints/ppo_{mode}_final.pt"
        assert weights(tmp_path / file) == weights(folder / "runs" / file)


def test_a_suite(tmp_path: Path) -> None:
    code = """
import rlcb
done = rlcb.benchmark(output_dir="suite", algorithms=["ppo"], modes=("sequential",), games="CartPole-v1",
                      seeds=range(2), total_timesteps=2048, num_envs=8, n_steps=32, eval_episodes=4,
                      num_threads=1, quiet=True)
print([(run.seed, run.status, len(run.evaluations.entries)) for run in done.runs], done.report)
again = rlcb.benchmark(output_dir="suite", quiet=True)
assert len(again.runs) == 2
more = rlcb.benchmark(output_dir="suite", seeds=range(3), quiet=True)
assert [(run.seed, len(run.evaluations.entries)) for run in more.runs] == [(0, 1), (1, 1), (2, 1)]
try:
    rlcb.benchmark(output_dir="suite", seeds=[7], quiet=True)
except rlcb.UsageError as error:
    assert "seeds [0, 1, 2] there and [7] here" in str(error)
try:
    rlcb.benchmark(output_dir="other", seed=3)
except rlcb.UsageError as error:
    print(error)
"""
    done = script(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "[(0, 'finished', 1), (1, 'finished', 1)] suite/report/report.html\n"
        "unknown argument seed; did you mean seeds?\n"
    )


# What is left in the caller's process


def test_importing_loads_nothing_else() -> None:
    code = """
import sys
before = set(sys.modules)
import rlcb
rlcb.__version__, rlcb.UsageError, rlcb.RlcbWarning, dir(rlcb)
print(sorted(name for name in set(sys.modules) - before if "rlcb" in name))
heavy = ("torch", "numpy", "matplotlib", "procgen", "gymnasium", "pydantic", "pandas", "scipy", "rich", "ray", "yaml")
print([name for name in heavy if name in sys.modules])
rlcb.train, rlcb.load_runs, rlcb.compare, rlcb.evaluate, rlcb.benchmark, rlcb.Run, rlcb.Compared, rlcb.Evaluated
print([name for name in ("torch", "matplotlib", "procgen", "pandas", "scipy", "ray") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['rlcb', 'rlcb.errors']", "[]", "[]"]


def test_everything_named_is_there() -> None:
    import rlcb

    assert {*rlcb.__all__} <= {*dir(rlcb)}
    assert all(getattr(rlcb, name) is not None for name in rlcb.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        rlcb.trian  # type: ignore[attr-defined]  # noqa: B018


def test_the_process_is_as_it_was(tmp_path: Path) -> None:
    code = f"""
import os, signal, torch, rlcb
torch.set_num_threads(2)
torch.manual_seed(11)
signal.signal(signal.SIGTERM, mine := lambda *_: None)
os.environ["OMP_NUM_THREADS"] = "7"
def state():
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)]
    others = ("PYGAME_HIDE_SUPPORT_PROMPT", "TORCHINDUCTOR_CACHE_DIR")  # set by packages that are imported
    variables = {{name: value for name, value in os.environ.items() if name not in others}}
    return variables, handlers, torch.get_num_threads(), torch.get_rng_state().tolist()
before = state()
run = rlcb.train("ppo", total_timesteps=512, num_envs=8, output_dir="run", quiet=True, **{SMALL!r})
assert state() == before
rlcb.evaluate(run, num_episodes=2, num_threads=1, quiet=True)
assert state() == before
try:
    rlcb.train("ppo", env="NoSuch-v0")
except rlcb.UsageError:
    assert state() == before
    print("as before")
"""
    done = script(tmp_path, code)
    assert (done.stdout, done.returncode) == ("as before\n", 0), done.stderr


def test_an_environment_of_the_script_itself(tmp_path: Path) -> None:
    """Sequential runs are in this process and know it; workers are processes of their own and do not."""
    code = """
import gymnasium, rlcb
from gymnasium.envs.classic_control import CartPoleEnv

class MyCart(CartPoleEnv):
    pass

gymnasium.register("MyCart-v0", MyCart, max_episode_steps=100)
small = {"env": "MyCart-v0", "n_steps": 32, "batch_size": 128, "num_threads": 1, "total_timesteps": 512, "quiet": True}
run = rlcb.train("ppo", num_envs=8, output_dir="one", **small)
print(run.env, run.status, rlcb.evaluate(run, num_episodes=3, quiet=True).results[0].episodes)
print(rlcb.train(resume=run, total_timesteps=1024, quiet=True).metrics.total_timesteps)
try:
    rlcb.train("ppo", "parallel", num_workers=2, num_envs=4, output_dir="two", **small)
except rlcb.UsageError as error:
    print(error)
"""
    done = script(tmp_path, code)
    assert done.returncode == 0, done.stderr
    first, second, refused = done.stdout.splitlines()
    assert (first, second) == ("MyCart-v0 finished 3", "1024.0")
    assert refused.startswith("environment MyCart-v0: is not known to worker processes")
    assert not (tmp_path / "two").exists()


def test_threads_and_streams_of_a_notebook(tmp_path: Path) -> None:
    """Code without a file, output that is no file, a thread that is not the main one, an event loop that runs."""
    code = f"""
import asyncio, io, sys, threading
import rlcb
sys.stdout, real = io.StringIO(), sys.stdout
def work(name, **how):
    done.append(rlcb.train("ppo", total_timesteps=512, output_dir=name, **how, **{SMALL!r}))
async def cell():
    work("one", num_envs=8)
done = []
asyncio.run(cell())
other = threading.Thread(target=work, args=("two",), kwargs=dict(mode="parallel", num_workers=2, num_envs=4))
other.start()
other.join()
text, sys.stdout = sys.stdout.getvalue(), real
assert "Resume with" not in text and text.count("one") and text.count("two"), text
print([run.status for run in done])
"""
    done = subprocess.run(
        [sys.executable, "-"], input=code, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "['finished', 'finished']\n", done.stderr
