"""Draws the learning curves of docs/results.md from the CSV files beside it.

usage: python docs/results/plot.py        (needs matplotlib, which `bash scripts/setup.sh` installs)
"""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[1] / "src" / "rlcb" / "analysis" / "published_ppo.csv"
WINDOW = 10  # updates to either side, as the published figures were smoothed
TEXTS = ("game", "algorithm", "mode", "variant")  # columns that are not numbers


def read(name: str, **wanted: str) -> list[dict[str, float]]:
    """The rows of a CSV file with the wanted texts in these columns, as numbers; an empty cell is not a number."""
    with (HERE / name).open() as file:
        rows = [row for row in csv.DictReader(file) if all(row[key] == text for key, text in wanted.items())]
    return [{key: float(value or "nan") for key, value in row.items() if key not in TEXTS} for row in rows]


def curves(rows: list[dict[str, float]], window: int = WINDOW) -> tuple[list[float], np.ndarray]:
    """Steps, and the reward of every seed [seeds, rows], smoothed over so many rows to either side."""
    by_seed: dict[float, list[dict[str, float]]] = defaultdict(list)
    for row in rows:
        by_seed[row["seed"]].append(row)
    smooth = []
    for line in by_seed.values():
        reward = np.array([row["ep_reward_mean"] for row in line])
        windows = [reward[max(0, i - window) : i + window + 1] for i in range(len(reward))]
        smooth.append([np.nanmean(window) if np.isfinite(window).any() else np.nan for window in windows])
    return [row["step"] for row in next(iter(by_seed.values()))], np.array(smooth)


def draw_published(axis: plt.Axes, last: float, scale: float = 1.0, **how: Any) -> None:
    """The published curve up to a step: mean ± std of 3 runs; `scale`: steps of a unit of the axis."""
    with PUBLISHED.open() as file:
        known = [row for row in csv.DictReader(file) if (row["protocol"], row["game"]) == ("easy-200-train", "coinrun")]
    rows = [row for row in known if float(row["env_steps"]) <= last]
    steps, mean, std = ([float(row[key]) for row in rows] for key in ("env_steps", "mean", "std_over_3_runs"))
    label = "published, mean ± std of 3 runs"
    axis.errorbar([step / scale for step in steps], mean, std, fmt="o--", color="black", capsize=3, label=label, **how)


def finish(axis: plt.Axes, name: str, title: str, lowest: float, steps: str = "environment steps") -> None:
    """Name the axes and write the picture."""
    axis.set(xlabel=steps, ylabel="training reward, mean of 100 episodes", title=title)
    axis.set_ylim(lowest, 10)
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right", fontsize=8)
    figure = axis.get_figure()
    figure.tight_layout()
    figure.savefig(HERE / name)


def draw_modes() -> None:
    """Write coinrun_modes.png: every seed of both modes, thin, and their means."""
    _, axis = plt.subplots(figsize=(8, 4.2), dpi=110)
    for mode, colour in (("sequential", "tab:blue"), ("parallel", "tab:orange")):
        steps, rewards = curves(read("coinrun_modes.csv", mode=mode))
        axis.plot(steps, rewards.T, color=colour, alpha=0.35, lw=1)
        axis.plot(steps, rewards.mean(0), color=colour, lw=2.2, label=f"{mode}, mean of 3 seeds; thin: each seed")
    finish(axis, "coinrun_modes.png", "CoinRun, easy, 200 levels: the same PPO in both modes", 0)


def draw_recipes() -> None:
    """Write coinrun_recipes.png: the default recipes in each mode, the mean of the seeds and each sequential seed."""
    _, axis = plt.subplots(figsize=(8, 4.5), dpi=110)
    for algorithm, colour in (("ppo", "tab:blue"), ("impala", "tab:orange"), ("a2c", "tab:green"), ("a3c", "tab:red")):
        for mode, style in (("sequential", "-"), ("parallel", "--")):
            rows = read("coinrun_recipes.csv", algorithm=algorithm, mode=mode)
            if not rows:  # A3C has one mode
                continue
            steps, rewards = curves(rows, window=2)
            million, label = np.array(steps) / 1e6, f"{algorithm.upper()} {mode}, {len(rewards)} seeds"
            axis.plot(million, rewards.mean(0), style, color=colour, lw=2.0, label=label)
            if mode == "sequential" or algorithm == "a3c":
                axis.plot(million, rewards.T, color=colour, alpha=0.3, lw=0.8)
    draw_published(axis, 2e6, 1e6, lw=1, ms=4)
    title = "CoinRun, easy, 200 levels: default recipes, report seeds (published: PPO's own recipe)"
    finish(axis, "coinrun_recipes.png", title, 4, "million environment steps")


def draw_long() -> None:
    """Write coinrun_gpu_25m.png: one long run on a GPU over the published runs."""
    _, axis = plt.subplots(figsize=(8, 4.2), dpi=110)
    steps, rewards = curves(read("coinrun_gpu_25m.csv"))
    axis.plot(np.array(steps) / 1e6, rewards[0], color="tab:blue", lw=1.2, label="rlcb on one GPU, seed 1")
    draw_published(axis, 25e6, 1e6, lw=1, ms=4)
    title = "CoinRun, easy, 200 levels: the published recipe"
    finish(axis, "coinrun_gpu_25m.png", title, 4, "million environment steps")


def main() -> None:
    """Write all pictures."""
    draw_modes()
    draw_recipes()
    draw_long()
    _, axis = plt.subplots(figsize=(8, 4.5), dpi=110)
    steps, rewards = curves(read("coinrun_ppo_paper.csv"))
    mean, std = rewards.mean(0), rewards.std(0, ddof=1)
    axis.fill_between(steps, mean - std, mean + std, alpha=0.2, color="tab:blue", lw=0)
    axis.plot(steps, mean, color="tab:blue", label="rlcb, ppo_paper.yaml, mean ± std of 3 seeds")
    draw_published(axis, steps[-1])
    cpu = read("coinrun_ppo_cpu.csv")
    axis.plot(
        [row["step"] for row in cpu], [row["ep_reward_mean"] for row in cpu], color="tab:orange", alpha=0.8, lw=1,
        label="rlcb, ppo_sequential.yaml on 2 CPU cores, 1 seed, unsmoothed",
    )  # fmt: skip
    axis.axhline(2.9, color="gray", lw=0.8, ls=":", label="random policy")
    finish(axis, "coinrun.png", "CoinRun, easy, 200 levels", 2)


if __name__ == "__main__":
    main()
