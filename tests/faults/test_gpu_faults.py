"""Failures of a GPU in the middle of real runs: the errors are torch's own, raised where networks compute."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from helpers.in_process import evaluate, final, rlcb_here
from helpers.processes import CARTPOLE, TINY_ROLLOUT, Finished, weights
from helpers.run_directories import assert_whole_history
from rlcb.config.schema import Config
from rlcb.errors import ResourceError
from rlcb.evaluation.play import Actor
from rlcb.execution.entry import WorkerContext, run_role
from rlcb.execution.messages import LimitSetup
from rlcb.learner import Learner
from rlcb.run.gpu_failures import gpu_failures, is_gpu_failure

pytestmark = pytest.mark.xdist_group("gpu faults")

ILLEGAL = (
    "CUDA error: an illegal memory access was encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
NO_MEMORY = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 3.00 GiB is "
    "free. Process 4711 has 120.00 GiB memory in use."
)
BROKEN = {
    "accelerator": (torch.AcceleratorError(ILLEGAL), "CUDA error: an illegal memory access was encountered"),
    "earlier torch": (RuntimeError(ILLEGAL), "CUDA error: an illegal memory access was encountered"),
    "driver": (RuntimeError("CUDA driver error: device is lost"), "CUDA driver error: device is lost"),
    "cudnn": (
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ),
    "cublas": (
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`"),
        "CUBLAS_STATUS_EXECUTION_FAILED",
    ),
}
STEPS = 4 * TINY_ROLLOUT


def train(path: Path, *more: str) -> Finished:
    flags = ("--total-timesteps", str(STEPS), "--save-interval", "1", "--tensorboard", "false")
    return rlcb_here("train", "ppo", *CARTPOLE, *flags, *more, "--output-dir", path)


def resume(path: Path) -> Finished:
    return rlcb_here("train", "--resume", path)


def failed(path: Path) -> dict[str, Any]:
    """The last event of a run, which must be its failure."""
    event: dict[str, Any] = json.loads((path / "events.jsonl").read_text().splitlines()[-1])
    assert event["event"] == "failed"
    return event


def break_in_update(monkeypatch: pytest.MonkeyPatch, number: int, error: Exception) -> None:
    """In this update the learner raises the error; from then on nothing can be read from its device."""
    update, count = Learner.update, 0

    def updated(self: Learner, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count < number:
            return update(self, *arguments)
        monkeypatch.setattr(Learner, "state", lambda self: raised(RuntimeError(ILLEGAL)))
        raise error

    monkeypatch.setattr(Learner, "update", updated)


def raised(error: Exception) -> Any:
    raise error


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that tells its memory."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 * 2**30, 140 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 17 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")


@pytest.mark.parametrize("kind", BROKEN)
def test_a_device_that_fails_ends_the_run_and_its_last_checkpoint_goes_on(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(tmp_path / "whole").returncode == 0
    error, line = BROKEN[kind]
    run = tmp_path / "run"
    with monkeypatch.context() as broken:
        break_in_update(broken, 3, error)
        done = train(run)
    words = ("the GPU failed: ", line, f"resume from the last checkpoint with: rlcb train --resume {run}")
    done.assert_one_line_error(6, *words)
    assert failed(run)["exit_code"] == 6
    assert line in failed(run)["reason"]
    assert_whole_history(run, updates=2)
    assert (run / "checkpoints" / f"ppo_sequential_step_{2 * TINY_ROLLOUT}.pt").is_file()
    assert resume(run).returncode == 0
    assert weights(final(run)) == weights(final(tmp_path / "whole"))


@pytest.mark.usefixtures("memory")
def test_out_of_memory_says_what_did_not_fit_who_holds_it_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as broken:
        break_in_update(broken, 2, torch.cuda.OutOfMemoryError(NO_MEMORY))
        done = train(run)
    done.assert_one_line_error(
        6,
        "out of memory on the GPU: 20.00 GiB more did not fit; NVIDIA H200 has 140.0 GB: 3.0 GB free, 17.0 GB held by "
        "this process, 120.0 GB by others and CUDA; use fewer --num-envs, a smaller --batch-size or "
        "--micro-batch-size, or end other programs on the GPU; resume from the last checkpoint with: rlcb train",
    )
    assert failed(run)["exit_code"] == 6
    assert resume(run).returncode == 0


def test_out_of_memory_before_the_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here torch has no CUDA and does not tell its memory: a GPU that no longer answers."""
    run = tmp_path / "run"
    with monkeypatch.context() as broken:
        broken.setattr(
            "rlcb.execution.worker.make_policy",
            lambda *_: raised(torch.cuda.OutOfMemoryError("CUDA error: out of memory")),
        )
        done = train(run)
    words = (
        "a request for memory was refused; use fewer --num-envs",
        "other programs on the GPU; nothing was saved yet",
    )
    done.assert_one_line_error(6, *words)
    assert failed(run)["exit_code"] == 6
    assert not list((run / "checkpoints").iterdir())
    assert train(run).returncode == 0  # the directory is free again


def test_a_gpu_that_fails_while_a_checkpoint_is_loaded_is_not_the_checkpoints_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert train(run).returncode == 0
    monkeypatch.setattr(Learner, "load", lambda *_: raised(torch.cuda.OutOfMemoryError(NO_MEMORY)))
    resumed = rlcb_here("train", "--resume", run, "--total-timesteps", str(2 * STEPS))
    resumed.assert_one_line_error(6, "out of memory on the GPU: 20.00 GiB more did not fit", f"--resume {run}")
    assert final(run).is_file()


def test_an_evaluation_says_the_same(copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    before = final(copy).read_bytes()
    monkeypatch.setattr(Actor, "act", lambda *_: raised(torch.cuda.OutOfMemoryError(NO_MEMORY)))
    evaluate(capsys, final(copy), "--num-episodes", "2").assert_one_line_error(
        6, "20.00 GiB more did not fit; use fewer --num-envs, or --device cpu, or end other programs on the GPU"
    )
    monkeypatch.setattr(Actor, "act", lambda *_: raised(torch.AcceleratorError(ILLEGAL)))
    done = evaluate(capsys, final(copy), "--num-episodes", "2")
    done.assert_one_line_error(6, "the GPU failed: CUDA error: an illegal memory access was encountered")
    assert final(copy).read_bytes() == before


def test_a_process_that_measures_limits_tells_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    error = torch.cuda.OutOfMemoryError(NO_MEMORY)
    monkeypatch.setattr("rlcb.execution.limit_worker.SpeedMeter", lambda setup: raised(error))
    sent: list[Any] = []
    channel: Any = SimpleNamespace(send=sent.append)
    nothing: Any = None
    context = WorkerContext(channel, *[nothing] * 4)
    run_role("limit_worker", context, LimitSetup(Config(algorithm="a2c"), torch.get_num_threads(), "cuda", 0, 0, 1, 1))
    (told,) = sent
    assert isinstance(told, ResourceError)
    assert "use fewer --num-envs, a smaller --micro-batch-size, or end" in str(told)  # A2C has no minibatches


def test_other_errors_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_in_update(monkeypatch, 1, RuntimeError("shape '[2]' is invalid for input of size 3"))
    with pytest.raises(RuntimeError, match="is invalid for input"):
        train(tmp_path / "run")
    assert not is_gpu_failure(ValueError(NO_MEMORY))
    assert is_gpu_failure(RuntimeError(f"backend='inductor' raised:\nOutOfMemoryError: {NO_MEMORY}"))


def test_errors_of_libraries_that_lack_memory_are_about_memory() -> None:
    error = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    words = "out of memory on the GPU: a request for memory was refused; use less"
    with pytest.raises(ResourceError, match=words), gpu_failures("less"):
        raise error
