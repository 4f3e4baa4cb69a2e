"""Whether two sequential runs of PPO learned the same."""

import json
from pathlib import Path

from helpers.processes import weights
from rlcb.run.checkpoint import load_checkpoint

FINAL = Path("checkpoints") / "ppo_sequential_final.pt"


def learned(path: Path) -> list[dict]:
    """The history of a run without what depends on the clock."""
    lines = (path / "logs" / "PPO_Sequential" / "metrics.jsonl").read_text().splitlines()
    timeless = [json.loads(line) for line in lines]
    return [{k: v for k, v in line.items() if not k.startswith(("time", "resource"))} for line in timeless]


def assert_equal_runs(one: Path, two: Path) -> None:
    assert weights(one / FINAL) == weights(two / FINAL)
    assert learned(one) == learned(two)
    first, second = load_checkpoint(one / FINAL), load_checkpoint(two / FINAL)
    assert first["run"]["episodes"] == second["run"]["episodes"]
    for section in ("normalizer", "episode", "discounted", "progress"):
        assert first[section] == second[section]
    for key in ("exp_avg", "exp_avg_sq", "step"):
        assert first["optimizer"][key].tolist() == second["optimizer"][key].tolist()
    assert [state.tolist() for state in first["envs"]] == [state.tolist() for state in second["envs"]]
