"""Files that are whole but wrong: valid checksums, valid JSON, valid ZIP archives around content that is not right."""

import copy as copying
import dataclasses
import json
import pickle
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.archives import Change, changed_archive, signed, write_sealed
from helpers.in_process import evaluate, final, results, rlcb_here
from helpers.mutations import WRONG, changed, places
from rlcb.config.schema import Config
from rlcb.envs.episodes import EpisodeStatistics
from rlcb.errors import CheckpointUnusable
from rlcb.execution.worker import Worker
from rlcb.run.checkpoint import from_content, load_checkpoint
from rlcb.run.directory import read_run
from rlcb.run.state import Start

pytestmark = pytest.mark.xdist_group("wrong files")

Capsys = pytest.CaptureFixture[str]
Content = dict[str, Any]
GENERATOR = torch.Generator().get_state()
GPU_GENERATOR = torch.tensor([1] + 7 * [0] + [8] + 7 * [0], dtype=torch.uint8)  # seed 1, offset 8
WRONG_TENSORS = (
    torch.zeros(3), torch.zeros(()), torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.int64),
    torch.full((4,), torch.nan), torch.zeros(0), torch.zeros(1).expand(10**6), torch.zeros_like(GENERATOR),
    torch.full_like(GENERATOR, 255), torch.zeros(9, dtype=torch.uint8), torch.zeros(2, 2).to_sparse(),
)  # fmt: skip


@dataclasses.dataclass
class Restored:
    """A run to restore checkpoints into, made once: what a resumed run does with one before it trains."""

    config: Config
    worker: Worker

    def problem(self, path: Path) -> str | None:
        """Why a checkpoint is refused; None if it can be gone on from."""
        try:
            self._load(path)
        except CheckpointUnusable as error:
            return str(error)
        return None

    def _load(self, path: Path) -> None:
        state, totals = from_content(load_checkpoint(path, self.config))
        episodes = EpisodeStatistics(self.config.env.num_envs)
        episodes.load(totals.episodes)
        episodes.recent(), episodes.initial()
        whole = state.redivided(1)
        self.worker.load(Start(whole.shared, whole.workers[0]))
        self.worker.collector.collect()


@pytest.fixture(scope="module")
def restored(cartpole: Path) -> Iterator[Restored]:
    config = read_run(cartpole)[0]
    worker = Worker(config)
    yield Restored(config, worker)
    worker.env.close()


@pytest.fixture(scope="module")
def content(cartpole: Path) -> Content:
    return load_checkpoint(final(cartpole))


@pytest.fixture
def only(copy: Path) -> Path:
    """The final checkpoint of a run that has no other."""
    for path in (copy / "checkpoints").glob("*_step_*.pt"):
        path.unlink()
    return final(copy)


# Checkpoints


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_a_checkpoint_is_refused_or_harmless(
    data: st.DataObject, content: Content, restored: Restored, tmp_path: Path
) -> None:
    """One place of a real checkpoint is changed and the checksum made right again: exit code 5, or a clean load."""
    place = data.draw(st.sampled_from(places(content)))
    change = data.draw(st.sampled_from(("replace", "replace", "replace", "remove", "double", "wrap")))
    wrong = data.draw(st.sampled_from((*WRONG, *WRONG_TENSORS)))
    path = tmp_path / "ppo_sequential_final.pt"
    write_sealed(path, changed(content, place, change, wrong))
    problem = restored.problem(path)
    if problem is not None:
        assert problem.startswith(f"{path}: ")
        assert problem.isprintable()
        assert len(problem) < 700


@pytest.mark.parametrize("section", ["policy", "optimizer"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused(
    copy: Path, content: Content, section: str, value: float, capsys: Capsys
) -> None:
    wrong = copying.deepcopy(content)
    name = "policy.0.weight" if section == "policy" else "exp_avg"
    wrong[section][name].view(-1)[1] = value
    write_sealed(final(copy), wrong)
    words = (5, "ppo_sequential_final.pt", f"{section}.{name} is not finite")
    evaluate(capsys, final(copy)).assert_one_line_error(*words)
    with pytest.raises(CheckpointUnusable, match=r"is not finite$"):
        load_checkpoint(final(copy))


WRONG_CONTENT = {
    "no policy": (("policy",), "remove", None, "policy is missing"),
    "progress without updates": (("progress", "updates"), "remove", None, "progress.updates is missing"),
    "steps as text": (("meta", "env_steps"), "replace", "768", "meta.env_steps must be a valid integer"),
    "steps below zero": (("progress", "env_steps"), "replace", -1, "progress.env_steps must be greater"),
    "steps beyond counting": (("meta", "env_steps"), "replace", 10**30, "meta.env_steps must be"),
    "format of the future": (("meta", "format"), "replace", 2, "has format 2; this version reads format 1"),
    "format as text": (("meta", "format"), "replace", "1", "this version reads format 1"),
    "weights of another shape": (("policy", "policy.0.weight"), "replace", torch.zeros(3), "does not fit"),
    "weights of another type": (("policy", "policy.0.weight"), "replace", torch.zeros(3).double(), "DoubleStorage"),
    "moments of another number": (("optimizer", "exp_avg"), "replace", torch.zeros(3), "optimizer.exp_avg is float32"),
    "a state too few": (("envs", 0), "remove", None, "envs and workers are inconsistent"),
    "a state that is none": (("envs", 0), "replace", torch.ones(9, dtype=torch.uint8), "envs.0 is not the state"),
    "a generator that is none": (("workers", 0, "acting"), "replace", torch.zeros_like(GENERATOR), "random generator"),
    "a GPU's generator that is none": (("workers", 0, "acting"), "replace", GPU_GENERATOR + 3, "random generator"),
    "a GPU's generator that learns": (("workers", 0, "learning"), "replace", GPU_GENERATOR, "random generator"),
    "a date that is none": (("run", "started"), "replace", "yesterday", "run.started must be a time with its zone"),
    "no configuration": (("meta", "config"), "replace", "{}", "its configuration cannot be read: env is missing"),
}


@pytest.mark.parametrize("kind", WRONG_CONTENT)
def test_a_wrong_checkpoint_ends_a_command_with_5_in_one_line(only: Path, content: Content, kind: str) -> None:
    place, change, wrong, words = WRONG_CONTENT[kind]
    write_sealed(only, changed(content, place, change, wrong))
    before = {path: path.read_bytes() for path in only.parents[1].rglob("*.pt")}
    done = rlcb_here("train", "--resume", only.parents[1])
    done.assert_one_line_error(5, str(only), words, "nothing was changed")
    assert {path: path.read_bytes() for path in only.parents[1].rglob("*.pt")} == before


@pytest.mark.parametrize("kind", ["steps as text", "weights of another shape", "a state that is none"])
def test_a_wrong_newest_checkpoint_falls_back_with_a_warning(copy: Path, content: Content, kind: str) -> None:
    place, change, wrong, words = WRONG_CONTENT[kind]
    write_sealed(final(copy), changed(content, place, change, wrong))
    done = rlcb_here("train", "--resume", copy)
    assert done.returncode == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert words in warning
    assert "falling back to the checkpoint before it" in warning
    assert "step_256.pt at step 256" in done.stderr
    assert load_checkpoint(final(copy))["meta"]["env_steps"] == 512


def test_a_run_that_acted_on_a_gpu_goes_on_here(only: Path, content: Content) -> None:
    write_sealed(only, changed(content, ("workers", 0, "acting"), "replace", GPU_GENERATOR))
    done = rlcb_here("train", "--resume", only.parents[1])
    assert done.returncode == 0, done.stderr


def test_an_evaluation_falls_back_in_a_directory_and_refuses_a_file(
    copy: Path, content: Content, capsys: Capsys
) -> None:
    write_sealed(final(copy), changed(content, ("policy", "policy.0.weight"), "replace", torch.zeros(3)))
    done = evaluate(capsys, copy, "--num-episodes", "2")
    assert done.returncode == 0, done.stderr
    assert "falling back" in done.stderr
    assert "step_256.pt" in done.stdout
    evaluate(capsys, final(copy)).assert_one_line_error(5, "policy.policy.0.weight is float32 of shape (3,)")


def test_states_that_a_game_would_end_its_process_over_are_refused(starpilot: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(starpilot, tmp_path / "run"))
    for path in (run / "checkpoints").glob("*_step_*.pt"):
        path.unlink()
    wrong = load_checkpoint(final(run))
    wrong["envs"][1] = wrong["envs"][1][:1000].clone()
    write_sealed(final(run), wrong)
    done = rlcb_here("train", "--resume", run, "--total-timesteps", "512")
    done.assert_one_line_error(5, "envs are not states of procgen-starpilot-v0", "nothing was changed")


# Sizes


def refused_without_memory(path: Path, *words: str) -> None:
    """The file is refused, and the process has not grown by what it would unpack to."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointUnusable) as caught:
        load_checkpoint(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 * 2**10, f"{grown} KB"
    for word in words:
        assert word in str(caught.value)


def test_an_archive_that_unpacks_to_gigabytes_is_refused_before(only: Path, content: Content) -> None:
    block = bytes(2**20)
    only.write_bytes(
        changed_archive(content, lambda name, data: (name, block, 1024) if "/data/0" in name else (name, data, 1))
    )
    assert only.stat().st_size < 10 * 2**20
    refused_without_memory(only, "it is compressed")


def test_a_large_sparse_file_is_refused_without_reading_it_into_memory(only: Path) -> None:
    with only.open("wb") as file:
        file.truncate(2 * 2**30)
    refused_without_memory(only, "not a checkpoint")


class Calls:
    """Pickled as a call of a function."""

    def __init__(self, function: Any, *arguments: Any):
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


def pickled_as(value: Any) -> Change:
    data = value if isinstance(value, bytes) else pickle.dumps(value, protocol=2)
    return lambda name, old: (name, data if name.endswith("data.pkl") else old, 1)


@pytest.mark.parametrize(
    ("description", "words"),
    [
        (Calls(bytearray, 2**40), "it refers to"),
        (Calls(torch.zeros, 2**40), "it refers to"),
        (Calls(torch.UntypedStorage, 2**40), "it refers to"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "LONG_BINPUT"),
        (b"\x80\x02" + b"]" * (4 * 2**20) + b".", "bytes describe"),
        (b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f.", "refused"),
        (b"", "refused"),
        (b"\x80\x02K\x01.", "not a checkpoint of this program"),
    ],
)
def test_a_description_that_takes_memory_or_calls_is_refused(
    only: Path, content: Content, description: Any, words: str
) -> None:
    only.write_bytes(changed_archive(content, pickled_as(description)))
    refused_without_memory(only, words)


def test_tensors_larger_than_their_bytes_are_refused(only: Path, content: Content) -> None:
    write_sealed(only, changed(content, ("policy", "policy.0.weight"), "replace", torch.zeros(1).expand(2**40)))
    refused_without_memory(only, "does not lie in its bytes")
    wrong = copying.deepcopy(content)
    wrong["envs"][1] = wrong["envs"][0]
    write_sealed(only, wrong)
    refused_without_memory(only, "share their bytes")
    only.write_bytes(changed_archive(content, lambda name, data: (name, data[:-4] if "/data/0" in name else data, 1)))
    refused_without_memory(only, "does not have the size of its tensor")


def test_a_record_that_its_own_checksum_does_not_fit_is_refused(only: Path, content: Content) -> None:
    data = bytearray(only.read_bytes()[:-76])
    place = data.find(content["policy"]["policy.0.weight"].numpy().tobytes())
    assert place > 0
    data[place] ^= 1
    only.write_bytes(signed(bytes(data)))
    refused_without_memory(only, "CRC-32")


# Other files of a run


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", "1", "{", '{"algorithm": [], "mode": {}}', '{"algorithm": "ppo", "mode": "sideways"}', "[" * 9999],
)
def test_a_wrong_run_json_is_5(copy: Path, text: str, capsys: Capsys) -> None:
    (copy / "run.json").write_text(text)
    rlcb_here("train", "--resume", copy).assert_one_line_error(5, "run.json")
    evaluate(capsys, copy).assert_one_line_error(5, "run.json")


def test_a_run_json_of_gigabytes_is_5(copy: Path) -> None:
    with (copy / "run.json").open("wb") as file:
        file.truncate(2 * 2**30)
    rlcb_here("train", "--resume", copy).assert_one_line_error(5, "run.json", "larger than 64 KB")


@pytest.mark.parametrize(
    "change",
    [
        (("evaluations", 0, "mean_reward"), "replace", "high"),
        (("evaluations", 0, "rewards"), "replace", {}),
        (("evaluations", 0, "rewards", 0), "replace", None),
        (("evaluations", 0, "env"), "replace", []),
        (("evaluations", 0), "replace", None),
        (("evaluations",), "replace", "none"),
        (("schema",), "replace", 2),
    ],
)
def test_wrong_evaluations_are_replaced_with_a_warning(copy: Path, change: tuple[Any, ...], capsys: Capsys) -> None:
    few = ("--num-episodes", "2")
    evaluate(capsys, final(copy), *few)
    stored = json.loads(results(final(copy)).read_text())
    results(final(copy)).write_text(json.dumps(changed(stored, *change)))
    done = evaluate(capsys, final(copy), *few, "--deterministic")
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stderr.splitlines() if "earlier evaluations cannot be read" in line]) == 1
    assert len(json.loads(results(final(copy)).read_text())["evaluations"]) == 1
