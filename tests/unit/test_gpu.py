"""What is said of GPUs: how busy they are, their memory, why one cannot be used, what `rlcb doctor` finds."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from helpers.in_process import rlcb_here
from helpers.management_library import ManagementLibrary
from helpers.processes import CARTPOLE
from rlcb import doctor, hardware
from rlcb.analysis.load import load_run
from rlcb.config.schema import Config
from rlcb.errors import UsageError
from rlcb.hardware import cuda_problem, resolve_device
from rlcb.run.gpu import GpuMeter, gpu_memory, gpu_used

UNKNOWN = {"resource/gpu_percent": None, "resource/gpu_memory_gb": None}
TOO_OLD = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)


@pytest.fixture(autouse=True)
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcb.run.gpu._EVERY", 0.002)


def test_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    surface = SimpleNamespace(
        max_memory_reserved=lambda: 3 * 2**30,
        max_memory_allocated=lambda: 2**31,
        current_device=lambda: 1,
        get_device_properties=lambda number: SimpleNamespace(name=f"GPU {number}", total_memory=24 * 2**30),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=surface))
    assert gpu_memory("cuda") == {"peak_gpu_memory_gb": 3.0, "peak_gpu_tensors_gb": 2.0}
    assert gpu_used("cuda") == {"gpu": "GPU 1", "gpu_memory_gb": 24.0}
    assert gpu_memory("cpu") == gpu_used("cpu") == {}


def test_the_meter_takes_means_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ManagementLibrary(percents=(10, 20, 60))
    library.install(monkeypatch)
    meter = GpuMeter("cuda")
    meter.start()
    assert library.told.wait(60)
    meter.close()
    count = library.calls.count("nvmlDeviceGetUtilizationRates")
    mean = (10 + 20 + 60 * (count - 2)) / count
    first = meter.sample()
    assert first == {"resource/gpu_percent": round(mean, 2), "resource/gpu_memory_gb": 3.0}
    assert meter.sample() == first  # there is no newer reading
    assert meter.totals() == {"gpu_percent": round(mean, 1), "peak_gpu_in_use_gb": 3.0}
    assert library.calls[-1] == "nvmlShutdown"


def test_an_update_shorter_than_the_interval_has_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcb.run.gpu._EVERY", 3600.0)
    ManagementLibrary(percents=(70,)).install(monkeypatch)
    meter = GpuMeter("cuda")
    meter.start()
    assert meter.sample()["resource/gpu_percent"] == 70
    meter.close()


@pytest.mark.parametrize(
    ("refused", "percent", "memory"),
    [
        ("nvmlInit_v2", None, None),
        ("nvmlDeviceGetHandleByUUID", None, None),
        ("nvmlDeviceGetUtilizationRates", None, 3.0),
        ("nvmlDeviceGetMemoryInfo", 50.0, None),
    ],
)
def test_what_the_library_refuses_is_unknown(
    refused: str, percent: float | None, memory: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = ManagementLibrary(refused=(refused,))
    library.install(monkeypatch)
    meter = GpuMeter("cuda")
    meter.start()
    assert meter.sample() == {"resource/gpu_percent": percent, "resource/gpu_memory_gb": memory}
    assert meter.totals() == {"gpu_percent": percent, "peak_gpu_in_use_gb": memory}
    meter.close()


def test_without_the_library_or_one_of_its_functions_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ManagementLibrary()
    library.install(monkeypatch)
    monkeypatch.setattr("ctypes.CDLL", type("Missing", (), {"__init__": _missing}))
    meter = GpuMeter("cuda")
    meter.start()
    assert meter.sample() == UNKNOWN
    meter.close()
    del library.nvmlInit_v2  # type: ignore[attr-defined]
    library.install(monkeypatch)
    meter = GpuMeter("cuda")
    meter.start()
    assert meter.sample() == UNKNOWN
    assert meter.totals() == {"gpu_percent": None, "peak_gpu_in_use_gb": None}
    meter.close()


def _missing(self: object, name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")


def test_a_run_on_cpu_cores_has_no_such_figures() -> None:
    meter = GpuMeter("cpu")
    meter.start()
    assert meter.sample() == meter.totals() == {}
    meter.close()


@pytest.mark.parametrize("known", [True, False])
def test_a_run_records_and_shows_them(known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ManagementLibrary(percents=(87,), refused=() if known else ("nvmlInit_v2",))
    library.install(monkeypatch)
    monkeypatch.setattr("rlcb.run.recorder.GpuMeter", lambda device: GpuMeter("cuda"))
    memory = {"peak_gpu_memory_gb": 2.5, "peak_gpu_tensors_gb": 2.0}
    monkeypatch.setattr("rlcb.run.recorder.gpu_memory", lambda device: memory)
    monkeypatch.setattr("rlcb.run.summary.gpu_used", lambda device: gpu_used("cuda"))
    small = ("--total-timesteps", "512", "--tensorboard", "false", "--output-dir", tmp_path / "run")
    done = rlcb_here("train", "ppo", *CARTPOLE, *small)
    assert done.returncode == 0, done.stderr
    (shown,) = re.findall(r"^  GPU: .*$", done.stdout, re.MULTILINE)
    with_figures = "  GPU: 87 % busy, NVIDIA H200, peak 3.0 GB of 140 GB in use by all programs"
    assert shown == (with_figures if known else "  GPU: NVIDIA H200, 140 GB")
    usage = json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())["resource_usage"]
    assert [usage[name] for name in ("gpu_percent", "peak_gpu_in_use_gb", "peak_gpu_memory_gb")] == (
        [87.0, 3.0, 2.5] if known else [None, None, 2.5]
    )
    columns = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert columns["resource/gpu_percent"] == [87.0 if known else None] * 2
    assert columns["resource/gpu_memory_gb"] == [3.0 if known else None] * 2
    assert load_run(tmp_path / "run").metrics.gpu_percent == (87.0 if known else None)


# Why a GPU cannot be used


def _machine(monkeypatch: pytest.MonkeyPatch, gpus: list[str], driver: str | None, cuda: str | None = "12.8") -> None:
    monkeypatch.setattr(hardware, "describe_gpus", lambda: {"gpus": gpus, "gpu_driver": driver})
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def _unavailable(text: str) -> bool:
    warnings.warn(text, stacklevel=1)
    return False


def _fail(error: Exception) -> Any:
    raise error


def test_a_torch_for_cpus_names_the_build_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, ["NVIDIA H200"], "570.124.06", cuda=None)
    version = torch.__version__
    with pytest.raises(
        UsageError, match=r"--device cuda: this torch .* is built for CPUs; NVIDIA H200 needs"
    ) as refused:
        resolve_device("cuda")
    assert f"({version})" in str(refused.value)
    assert str(refused.value).endswith(f"pip install torch=={version.split('+')[0]}; or use --device cpu")
    assert resolve_device("auto") == resolve_device("cpu") == "cpu"


def test_a_driver_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    _machine(monkeypatch, ["NVIDIA H200"], "470.57.02")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: _unavailable(TOO_OLD))
    problem = cuda_problem()
    assert problem is not None
    assert problem.startswith("the NVIDIA driver 470.57.02 (CUDA 11.4) is too old for torch ")
    assert problem.endswith("built for CUDA 12.8; install a newer driver")
    _machine(monkeypatch, [], None)  # neither /proc nor nvidia-smi tells
    monkeypatch.setattr(torch.cuda, "is_available", lambda: _unavailable(TOO_OLD))
    assert str(cuda_problem()).startswith("the NVIDIA driver (CUDA 11.4) is too old for torch ")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("gpus", "driver", "visible", "words"),
    [
        ([], None, None, "no NVIDIA driver found (no /proc/driver/nvidia, no working nvidia-smi)"),
        ([], None, "0", "no NVIDIA driver found"),
        (["NVIDIA H200"], "570.1", "", "CUDA_VISIBLE_DEVICES is '', which hides the GPU (NVIDIA H200); set it to 0"),
        (["NVIDIA H200"], "570.1", "-1", "CUDA_VISIBLE_DEVICES is '-1', which hides the GPU (NVIDIA H200)"),
        (["NVIDIA H200"], "570.1", None, "torch sees no GPU; the driver 570.1 lists NVIDIA H200"),
        ([], "570.1", None, "torch sees no GPU; the driver 570.1 lists none"),
    ],
)
def test_a_gpu_that_is_missing_or_hidden_is_told_apart(
    gpus: list[str], driver: str | None, visible: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _machine(monkeypatch, gpus, driver)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert words in str(cuda_problem())


def test_cuda_that_cannot_be_initialised_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CUDA unknown error - this may be due to an incorrectly set up environment"
    _machine(monkeypatch, ["NVIDIA H200"], "570.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: _unavailable(f"CUDA initialization: {text}"))
    assert cuda_problem() == f"torch cannot use the GPU: {text}"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: _fail(RuntimeError(f"{text}\nSetting the available devices")))
    assert cuda_problem() == f"torch cannot use the GPU: {text}"


def test_a_gpu_that_works_is_no_problem_and_other_warnings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, ["NVIDIA H200"], "570.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: _unavailable("another matter"))
    with pytest.warns(UserWarning, match="another matter"):
        assert cuda_problem() is None
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    assert resolve_device("cuda") == resolve_device("auto") == "cuda"


def test_auto_says_in_one_note_why_it_takes_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, ["NVIDIA H200"], "470.57.02")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: _unavailable(TOO_OLD))
    where = ("--total-timesteps", "256", "--tensorboard", "false", "--output-dir", tmp_path / "run")
    done = rlcb_here("train", "ppo", *CARTPOLE, *where, "--device", "auto")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    problem = "the NVIDIA driver 470.57.02 (CUDA 11.4) is too old for"
    assert line.startswith(f"note: --device auto selects the CPU: {problem}")
    monkeypatch.setattr("rlcb.evaluation.evaluate.describe_gpus", hardware.describe_gpus)
    played = rlcb_here("evaluate", "--checkpoint", tmp_path / "run", "--num-episodes", "2", "--num-threads", "1")
    assert played.returncode == 0, played.stderr
    assert [text for text in played.stderr.splitlines() if "--device auto" in text] == [line]
    refused = rlcb_here("train", "ppo", *CARTPOLE, *where, "--device", "cuda")
    refused.assert_one_line_error(2, "--device cuda: the NVIDIA driver 470.57.02 (CUDA 11.4) is too old")
    assert "Warning" not in done.stderr + played.stderr + refused.stderr


# rlcb doctor


def test_the_doctor_describes_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, ["NVIDIA H200"], "570.124.06")
    ManagementLibrary().install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert doctor._gpu() == "NVIDIA H200, 140.0 GB, driver 570.124.06, bf16, torch.compile"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "no bf16, no torch.compile (no C compiler: " in doctor._gpu()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "no torch.compile (Triton is not installed: " in doctor._gpu()


def test_the_doctor_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, [], None)
    assert doctor._gpu().startswith("training uses the CPU: no NVIDIA driver found")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_the_measurement_of_precisions_fails_in_one_line() -> None:
    config = {"algorithm": "ppo", **Config(algorithm="ppo").model_dump(mode="json")}
    order = {"config": config, "items": 8, "threads": 1, "device": "cuda"}
    command = [sys.executable, "-m", "rlcb.limits.precision_trial", str(os.getpid())]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("--device cuda: ")
