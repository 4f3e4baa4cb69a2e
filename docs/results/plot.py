"""Draws the learning curves of docs/results.md from the CSV files beside it.

usage: python docs/results/plot.py        (needs matplotlib, which `bash scripts/setup.sh` installs)
"""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from tables import GAMES

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[1] / "src" / "rlcb" / "analysis" / "published_ppo.csv"
WINDOW = 10  # updates to either side, as the published figures were smoothed
TEXTS = ("game", "algorithm", "mode", "variant")  # columns that are not numbers
COLOURS = {"ppo": "tab:blue", "impala": "tab:orange", "a2c": "tab:green", "a3c": "tab:red"}


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


def draw_published(axis: plt.Axes, last: float, scale: float = 1.0, game: str = "coinrun", **how: Any) -> None:
    """The published curve up to a step: mean ± std of 3 runs; `scale`: steps of a unit of the axis."""
    with PUBLISHED.open() as file:
        known = [row for row in csv.DictReader(file) if (row["protocol"], row["game"]) == ("easy-200-train", game)]
    rows = [row for row in known if float(row["env_steps"]) <= last]
    steps, mean, std = ([float(row[key]) for row in rows] for key in ("env_steps", "mean", "std_over_3_runs"))
    label = "published PPO, mean ± std of 3 runs"
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


def minutes_of(rows: list[dict[str, float]], game: str, algorithm: str) -> np.ndarray:
    """When a parallel run reached its rows; CoinRun's runs are of hours of different speed, so they get Maze's."""
    if game != "coinrun":
        return np.array([row["seconds"] for row in rows]) / 60
    maze = read("recipes.csv", game="maze", algorithm=algorithm, mode="parallel")
    last = max(row["step"] for row in maze)
    seconds = np.mean([row["seconds"] for row in maze if row["step"] == last])
    return np.array([row["step"] for row in rows]) * seconds / last / 60


def draw_recipes() -> None:
    """Write recipes.png: the default recipes in three games, all ways over steps and the parallel ones over time."""
    figure, axes = plt.subplots(2, len(GAMES), figsize=(13, 7.6), dpi=110, sharey="col")
    for (game, title), (over_steps, over_time) in zip(GAMES.items(), axes.T, strict=True):
        for algorithm, colour in COLOURS.items():
            for mode, style in (("sequential", "-"), ("parallel", "--")):
                rows = read("recipes.csv", game=game, algorithm=algorithm, mode=mode)
                if not rows:  # A3C has one mode
                    continue
                steps, rewards = curves(rows, window=2)
                line = {"color": colour, "lw": 1.8, "label": f"{algorithm.upper()} {mode}"}
                over_steps.plot(np.array(steps) / 1e6, rewards.mean(0), style, **line)
                if mode == "parallel":
                    minutes = minutes_of(rows, game, algorithm).reshape(rewards.shape)
                    over_time.plot(minutes.mean(0), rewards.mean(0), **line)
                    over_time.plot(minutes.T, rewards.T, color=colour, alpha=0.3, lw=0.8)
        draw_published(over_steps, 2e6, 1e6, game, lw=1, ms=4)
        over_steps.set(title=f"{title}: all ways, over steps", xlabel="million environment steps")
        over_time.set(title=f"{title}: parallel on 2 cores, over time", xlabel="minutes of training")
    axes[0, 0].legend(fontsize=8)
    axes[1, 0].legend(fontsize=8, title="mean of 3 seeds; thin: each seed", title_fontsize=8)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("training reward, mean of 100 episodes")
    figure.tight_layout()
    figure.savefig(HERE / "recipes.png")


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
