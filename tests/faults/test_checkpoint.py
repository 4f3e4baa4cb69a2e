"""Checkpoints: whole or refused, whatever happens to them; and nothing in them is ever executed."""

import hashlib
import io
import os
import pickle
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from helpers.archives import signed
from helpers.processes import CARTPOLE, HELPERS, TINY, rlcb, run
from rlcb.errors import CheckpointUnusable, Diverged
from rlcb.run.checkpoint import candidates, load_checkpoint, load_newest, prune, save_checkpoint

pytestmark = pytest.mark.xdist_group("checkpoints")


@pytest.fixture(scope="module")
def coinrun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished CoinRun run with the checkpoints of steps 0, 256, 512 and the final one of 768."""
    path = tmp_path_factory.mktemp("coinrun") / "run"
    done = rlcb("train", "ppo", *TINY, "--total-timesteps", "768", "--save-interval", "1", "--output-dir", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def copy(coinrun: Path, tmp_path: Path) -> Path:
    """A copy of that run to do harm to."""
    shutil.copytree(coinrun, tmp_path / "run")
    return tmp_path / "run"


def checkpoint(run_path: Path, name: str) -> Path:
    return run_path / "checkpoints" / f"ppo_sequential_{name}.pt"


def test_checkpoints_of_a_run(coinrun: Path) -> None:
    names = [path.name for path in candidates(coinrun / "checkpoints", "ppo")]
    assert names == [f"ppo_sequential_{name}.pt" for name in ("final", "step_512", "step_256", "step_0")]


def test_a_checkpoint_opens_with_plain_torch(coinrun: Path) -> None:
    content = torch.load(checkpoint(coinrun, "final"), weights_only=True)
    assert content["policy"]["policy_head.bias"].shape == (15,)
    assert content["meta"]["env_steps"] == 768


@pytest.mark.parametrize("keep", ["half", "all but one byte", "nothing"])
def test_a_truncated_newest_one_falls_back_with_a_warning(copy: Path, keep: str) -> None:
    data = checkpoint(copy, "final").read_bytes()
    size = {"half": len(data) // 2, "all but one byte": len(data) - 1, "nothing": 0}[keep]
    checkpoint(copy, "final").write_bytes(data[:size])
    done = rlcb("train", "--resume", copy)
    assert done.returncode == 0, done.stderr
    assert "warning:" in done.stderr
    assert "ppo_sequential_final.pt" in done.stderr
    assert "resuming from" in done.stderr
    assert "at step 512" in done.stderr
    assert "Update 3 | Step 768" in done.stdout
    assert load_checkpoint(checkpoint(copy, "final"))["meta"]["env_steps"] == 768
    assert "checkpoint_unusable" in (copy / "events.jsonl").read_text()


@pytest.mark.parametrize("part", ["policy", "optimizer", "envs"])
def test_one_flipped_bit_is_noticed(copy: Path, part: str) -> None:
    content = load_checkpoint(checkpoint(copy, "final"))
    tensors = {"policy": content["policy"]["body.dense.weight"], "optimizer": content["optimizer"]["exp_avg_sq"]}
    tensor = tensors[part] if part in tensors else content["envs"][3]
    data = bytearray(checkpoint(copy, "final").read_bytes())
    place = data.find(tensor.contiguous().numpy().tobytes()[:4096]) + 1000
    assert place > 1000
    data[place] ^= 0b100
    checkpoint(copy, "final").write_bytes(bytes(data))
    with pytest.raises(CheckpointUnusable, match="SHA-256"):
        load_checkpoint(checkpoint(copy, "final"))
    warnings: list[str] = []
    path, _ = load_newest(copy / "checkpoints", "ppo", warnings.append)
    assert path == checkpoint(copy, "step_512")
    assert "ppo_sequential_final.pt" in warnings[0]


def test_all_damaged_is_exit_5_and_nothing_is_touched(copy: Path) -> None:
    for path in (copy / "checkpoints").glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-10])
    before = {path.name: path.stat().st_size for path in (copy / "checkpoints").iterdir()}
    done = rlcb("train", "--resume", copy)
    done.assert_one_line_error(5, "none of the 4 checkpoints", "nothing was changed")
    assert {path.name: path.stat().st_size for path in (copy / "checkpoints").iterdir()} == before


def test_a_directory_without_a_run_is_exit_5(tmp_path: Path) -> None:
    rlcb("train", "--resume", tmp_path).assert_one_line_error(5, "no run to resume")
    rlcb("train", "--resume", tmp_path / "nowhere").assert_one_line_error(5, "no run to resume")
    assert not (tmp_path / "nowhere").exists()


def replace_all(copy: Path, content: dict) -> None:
    """Make this the only checkpoint of a run."""
    for path in (copy / "checkpoints").glob("*.pt"):
        path.unlink()
    save_checkpoint(checkpoint(copy, "final"), content)


def test_the_checkpoint_of_another_game_never_reaches_the_game(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    arguments = (*TINY, "--env", "starpilot", "--total-timesteps", "256", "--output-dir", other)
    assert rlcb("train", "ppo", *arguments).returncode == 0
    replace_all(copy, load_checkpoint(checkpoint(other, "final")))
    done = rlcb("train", "--resume", copy)
    done.assert_one_line_error(5, "procgen-starpilot-v0", "procgen-coinrun-v0")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("format", 99, ["format 99", "format 1"]), ("algorithm", "dqn", ["dqn", "ppo"])],
)
def test_foreign_formats_and_algorithms_are_named(copy: Path, key: str, value: object, words: list[str]) -> None:
    content = load_checkpoint(checkpoint(copy, "final"))
    content["meta"][key] = value
    replace_all(copy, content)
    done = rlcb("train", "--resume", copy)
    assert done.returncode == 5
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_weights_of_another_shape_do_not_fit(copy: Path) -> None:
    content = load_checkpoint(checkpoint(copy, "final"))
    content["policy"]["policy_head.bias"] = torch.zeros(3)
    replace_all(copy, content)
    rlcb("train", "--resume", copy).assert_one_line_error(5, "does not fit")


def test_weights_that_are_not_finite_are_never_saved(copy: Path) -> None:
    content = load_checkpoint(checkpoint(copy, "final"))
    content["policy"]["policy_head.bias"][0] = float("nan")
    with pytest.raises(Diverged, match="not finite"):
        save_checkpoint(checkpoint(copy, "final"), content)
    load_checkpoint(checkpoint(copy, "final"))


class Canary:
    """Unpickling this creates a file."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def hostile_files(marker: Path) -> dict[str, bytes]:
    """Files that would execute code or write elsewhere if anybody let them."""
    plain = pickle.dumps(Canary(marker), protocol=2)
    with_torch = io.BytesIO()
    torch.save({"meta": Canary(marker)}, with_torch)
    escaping = io.BytesIO()
    with zipfile.ZipFile(escaping, "w") as archive:
        archive.writestr("archive/data.pkl", plain)
        archive.writestr("../../escaped", b"x")
        archive.writestr("archive/version", b"3\n")
    return {
        "pickle": plain,
        "signed pickle": plain + b"rlcb-sha256:" + hashlib.sha256(plain + b"rlcb-sha256:").hexdigest().encode(),
        "torch": with_torch.getvalue(),
        "signed torch": signed(with_torch.getvalue()),
        "escaping zip": escaping.getvalue(),
        "signed escaping zip": signed(escaping.getvalue()),
    }


@pytest.mark.parametrize("kind", hostile_files(Path("/nowhere")))
def test_hostile_checkpoints_are_refused_unexecuted(copy: Path, tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "marker"
    for path in (copy / "checkpoints").glob("*.pt"):
        path.unlink()
    checkpoint(copy, "final").write_bytes(hostile_files(marker)[kind])
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(CheckpointUnusable):
        load_checkpoint(checkpoint(copy, "final"))
    assert not marker.exists()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_hostile_checkpoint_ends_the_command_with_5(copy: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for path in (copy / "checkpoints").glob("*.pt"):
        path.write_bytes(hostile_files(marker)["signed torch"])
    rlcb("train", "--resume", copy).assert_one_line_error(5, "none of the")
    assert not marker.exists()


def test_a_symbolic_link_is_refused(copy: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.pt"
    checkpoint(copy, "final").rename(target)
    checkpoint(copy, "final").symlink_to(target)
    with pytest.raises(CheckpointUnusable, match="symbolic link"):
        load_checkpoint(checkpoint(copy, "final"))


def test_pruning_keeps_the_newest(copy: Path) -> None:
    prune(copy / "checkpoints", "ppo_sequential", 2, newest=768)
    left = {path.name for path in (copy / "checkpoints").glob("*.pt")}
    assert left == {f"ppo_sequential_{name}.pt" for name in ("final", "step_512", "step_256")}


def test_damaged_ones_do_not_count_among_those_that_are_kept(tmp_path: Path) -> None:
    path, folder = tmp_path / "run", tmp_path / "run" / "checkpoints"
    keep = ("--save-interval", "2", "--keep-checkpoints", "2")
    assert rlcb("train", "ppo", *CARTPOLE, *keep, "--total-timesteps", "512", "--output-dir", path).returncode == 0
    os.rename(checkpoint(path, "final"), checkpoint(path, "step_512"))
    for step in (4096, 8192, 16384):  # the run had been further, and all that it saved there is damaged
        checkpoint(path, f"step_{step}").write_bytes(b"damaged")
    done = rlcb("train", "--resume", path, "--total-timesteps", "1280")
    assert done.returncode == 0, done.stderr
    assert "at step 512" in done.stderr
    left = sorted(int(name.stem.rpartition("_")[2]) for name in folder.glob("*_step_*.pt"))
    assert left == [512, 1024]
    checkpoint(path, "final").write_bytes(b"damaged")
    assert load_newest(folder, "ppo", lambda text: None)[0] == checkpoint(path, "step_1024")


def test_killed_at_every_point_of_writing_a_valid_checkpoint_remains(coinrun: Path, tmp_path: Path) -> None:
    """SIGKILL before each system call of a save: what is found afterwards is the old checkpoint or the new one."""
    done = run(
        [sys.executable, str(HELPERS / "kill_while_saving.py"), str(checkpoint(coinrun, "final")), str(tmp_path)]
    )
    assert done.returncode == 0, done.stderr
    outcomes = done.stdout.split()
    assert len(outcomes) >= 20
    assert set(outcomes) == {"old", "new"}
    assert outcomes == sorted(outcomes, reverse=True)  # old until the rename, new from then on


def test_half_written_files_are_swept_on_resume(tmp_path: Path) -> None:
    path = tmp_path / "run"
    short = (*CARTPOLE, "--total-timesteps", "256", "--output-dir", path)
    assert rlcb("train", "ppo", *short).returncode == 0
    leftover = path / "checkpoints" / ".ppo_sequential_step_512.pt.tmp-1"
    leftover.write_bytes(b"half")
    done = rlcb("train", "--resume", path)
    assert done.returncode == 0
    assert "removed unfinished" in done.stderr
    assert not leftover.exists()
