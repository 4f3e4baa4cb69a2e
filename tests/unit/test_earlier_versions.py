"""What version 0.1.0 wrote still loads, means the same and compares: see tests/fixtures/README.md."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb.config.load import build_config

FIXTURES = ROOT / "tests" / "fixtures"
RUNS = FIXTURES / "runs"
CONFIGS = json.loads((FIXTURES / "configs.json").read_text())
# What the searches for recipes have changed since (docs/results.md).
NEW_RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "a2c": {"training": {"learning_rate": 2e-3, "lr_schedule": "linear", "gamma": 0.99}},
    "a3c": {"training": {"learning_rate": 9e-4, "lr_schedule": "linear", "gamma": 0.99}},
    "ppo": {
        "training": {"learning_rate": 5e-4, "lr_schedule": "linear", "gamma": 0.99},
        "ppo": {"ent_coef": 0.003},
    },
    "impala": {
        "training": {"learning_rate": 8e-4, "lr_schedule": "linear", "gamma": 0.99},
        "impala": {"ent_coef": 0.003},
    },
}


def assert_kept(before: Any, now: Any, where: str = "") -> None:
    """Everything that was there is there with the same value; keys may be added."""
    if isinstance(before, dict):
        assert isinstance(now, dict), where
        for key, value in before.items():
            assert key in now, f"{where}.{key} is missing"
            assert_kept(value, now[key], f"{where}.{key}")
    elif isinstance(before, list):
        assert isinstance(now, list), where
        assert len(before) == len(now), where
        for index, (one, other) in enumerate(zip(before, now, strict=True)):
            assert_kept(one, other, f"{where}[{index}]")
    elif isinstance(before, float):
        assert now == pytest.approx(before, rel=1e-9, abs=1e-12), where
    else:
        assert now == before, where


@pytest.mark.parametrize("file", sorted(CONFIGS))
def test_a_shipped_config_resolves_to_what_it_did(file: str) -> None:
    stored = copy.deepcopy(CONFIGS[file])
    if file != "ppo_paper.yaml":  # keeps the published recipe
        for section, keys in NEW_RECIPES.get(stored["algorithm"], {}).items():
            stored["config"][section].update(keys)
    config = build_config(ROOT / "config" / file, {}, mode=stored["mode"], algorithm=stored["algorithm"])
    assert_kept(stored["config"], json.loads(json.dumps(config.as_used())), file)


def test_every_shipped_config_is_stored() -> None:
    assert {path.name for path in (ROOT / "config").glob("*.yaml")} >= set(CONFIGS)


def test_a_comparison_of_stored_runs_says_what_it_did(tmp_path: Path) -> None:
    done = rlcb_here("compare", RUNS.relative_to(ROOT), "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    stored = json.loads((FIXTURES / "comparison.json").read_text())
    assert_kept(stored, json.loads((tmp_path / "comparison.json").read_text()))
