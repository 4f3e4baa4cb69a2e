"""The report: everything in it, nothing that leaves it, and nothing of a run that becomes part of the page's code."""

import csv
import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.run_directories import add_event, change, log_of, write_evaluation, write_run
from rlcb import __version__
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_run, load_runs
from rlcb.analysis.published import published_curve
from rlcb.analysis.run import Run
from rlcb.envs.families import GAMES
from rlcb.hardware import code_version
from rlcb.report.compare import compare_any, write_report
from rlcb.report.sections import Origin

pytestmark = pytest.mark.xdist_group("report")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VOID = {"meta", "br"}
EVIL = '"><img src=x onerror=alert(1)><script>alert(2)</script>`|$_{'
PARALLEL: dict[str, Any] = {"mode": "parallel", "workers": 4, "threads": 2, "fps": 2100.0, "rewards": (3.0, 9.0)}


class Page(HTMLParser):
    """A page taken apart; fails on a tag that is closed out of turn."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def report(runs: Sequence[Run], folder: Path) -> tuple[Page, str]:
    """Write a report; returns the page taken apart, and the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    origin = Origin(runs, [f"left out: {EVIL}"], f"rlcb compare {EVIL}", datetime(2026, 5, 4, tzinfo=UTC))
    write_report(compare(runs), folder, origin)
    return Page((folder / "report.html").read_text()), (folder / "report.md").read_text()


def loaded(folder: Path) -> list[Run]:
    return load_runs([folder], lambda _: None)


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Runs that try to get into the page in every way, and the folder of their report."""
    folder = tmp_path_factory.mktemp("evil")
    name = EVIL.replace("/", "")
    for seed in (1, 2):
        for mode, more in (("a", {}), ("b", PARALLEL)):
            path = write_run(folder / "runs" / f"{mode}{seed}{name}", seed=seed, updates=150, **more)
            write_evaluation(path, 7.0 + 0.1 * seed, 6.0 + 0.2 * seed)
            config = json.loads((path / "benchmark_metrics.json").read_text())["config"]
            config["training"] |= {EVIL: 1, "network": EVIL * seed if mode == "a" else "nature"}
            change(path, config=config, hardware={"python": EVIL, "versions": {EVIL: EVIL}, "instruction_sets": [EVIL]})
    failed = write_run(folder / "runs" / "failed", seed=3, status="diverged", **PARALLEL)
    add_event(failed, "failed", reason=EVIL, exit_code=3)
    other = write_run(folder / "runs" / "other", seed=1)
    config = json.loads((other / "benchmark_metrics.json").read_text())["config"]
    config["env"] |= {"name": EVIL}
    change(other, config=config, hardware={"cpu": EVIL})
    report(loaded(folder / "runs"), folder / "out")
    return folder / "runs", folder / "out"


def test_nothing_of_a_run_becomes_part_of_the_page(evil: tuple[Path, Path]) -> None:
    text = (evil[1] / "report.html").read_text()
    page = Page(text)
    assert not {"img", "link", "iframe", "object"} & set(page.tags)
    # Only the page's own scripts may run: the policy names them by their hashes, and nothing of a run is in them.
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == page.tags.count("script")
    running = [content for kind, content in scripts if kind != ' type="application/json"' and "palette" not in kind]
    hashes = [b64encode(sha256(content.encode()).digest()).decode() for content in running]
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
    assert f"script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}';" in policy
    assert len(running) == 2
    assert not any("alert" in content for content in running)
    data = [json.loads(content) for kind, content in scripts if "json" in kind]
    assert any(EVIL in curve["label"] for one in data if "views" in one for curve in one["views"][0]["curves"])
    names = {name for name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on")} | {"src", "srcset", "action"} & names
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    assert page.text.count(EVIL) > 10
    assert any(name == "content" and "default-src 'none'" in value for name, value in page.attributes)


def test_nothing_of_a_run_becomes_part_of_the_text(evil: tuple[Path, Path]) -> None:
    text = (evil[1] / "report.md").read_text()
    prose = re.sub(r"^(`{3,})\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert text.count("<script>") >= 2  # inside fences, where it is only shown
    assert set(re.findall(r"<\w+", prose)) == {"<details", "<summary"}
    assert re.search(r"(?<!\\)`", prose) is None
    rows = [line for line in prose.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    tables = [number for number, row in enumerate(rows) if set(row) <= set("|:- ")]
    assert len(tables) >= 8
    for number in tables:
        end = next((later - 1 for later in tables if later > number), len(rows))
        assert len(set(widths[number - 1 : end])) == 1, rows[number - 1]
    for name in re.findall(r"!\[.*\]\((.+)\)", prose):
        with Image.open(evil[1] / name) as picture:
            assert picture.size[0] > 800


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs" / str(seed), seed=seed, updates=150)
    report(loaded(tmp_path / "runs"), tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Permission is hereby granted, free of charge" in text  # the licence of the library in it
    marks = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"https?:|\bsrc=\"|url\((?!#)|@import|<link", marks) == []
    identifiers = re.findall(r' id="([^"]+)"', text)
    assert len(identifiers) == len(set(identifiers))
    for target in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text):
        assert "".join(target) in identifiers


def test_every_run_is_in_it(evil: tuple[Path, Path]) -> None:
    page, text = Page((evil[1] / "report.html").read_text()), (evil[1] / "report.md").read_text()
    rows = {row["run"]: row for row in csv.DictReader((evil[1] / "runs.csv").open())}
    paths = [str(path) for path in evil[0].iterdir()]
    assert sorted(rows) == sorted(paths)
    for path in paths:
        assert path in page.texts
        assert re.sub(r"([`|_])", r"\\\1", path.replace("<", "&lt;").replace(">", "&gt;")) in text
    failed = rows[str(evil[0] / "failed")]
    assert (failed["status"], failed["reason"]) == ("failed", EVIL)
    assert float(rows[paths[0]]["average_fps"]) > 0
    evaluated = next(row for path, row in rows.items() if "/a2" in path)
    assert (float(evaluated["evaluation_train"]), float(evaluated["evaluation_unseen"])) == (7.2, 6.4)


def test_the_browser_shows_it_without_a_complaint(evil: tuple[Path, Path], tmp_path: Path) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser on PATH: none of {', '.join(BROWSERS)}")
    good, bad = evil[1] / "report.html", tmp_path / "bad.html"
    # The same page with what it must never have: shows that the browser would complain.
    bad.write_text(good.read_text().replace("</main>", '<img src="https://example.org/x.png"></main>'))
    complaints = []
    for page in (good, bad):
        flags = ("headless", "disable-gpu", "no-first-run", "disable-background-networking", "enable-logging=stderr",
                 "host-resolver-rules=MAP * ~NOTFOUND", f"user-data-dir={tmp_path / page.stem}", "v=0")  # fmt: skip
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [browser, *(f"--{flag}" for flag in flags), *sandbox, "--dump-dom", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        complaints.append([line for line in done.stderr.splitlines() if "CONSOLE" in line])
        if page == good:
            seen = Page(re.sub(r"<(path|use|rect)([^>]*)/>", r"<\1\2></\1>", done.stdout))
            assert "img" not in seen.tags
            assert seen.tags.count("svg") == good.read_text().count("<svg ") >= 5
    assert complaints[0] == []
    assert "Content Security Policy" in complaints[1][0]


def variations(run: Run, groups: int, seeds: int) -> list[Run]:
    """Many runs that differ from one in a setting, their seed and their figures."""
    rng = np.random.default_rng(0)
    found = []
    for group in range(groups):
        training = {**run.config["training"], "learning_rate": 1e-4 * (group + 1)}
        for seed in range(seeds):
            metrics = replace(run.metrics, final_reward=float(rng.normal(8)), average_fps=float(rng.normal(1000)))
            name = f"/somewhere/with/a/rather/long/path/group_{group:03d}/seed_{seed}"
            history = replace(run.history, reward=run.history.reward + rng.normal(size=len(run.history.reward)))
            config = {**run.config, "training": training}
            found.append(replace(run, name=name, seed=seed, config=config, metrics=metrics, history=history))
    return found


def test_two_hundred_runs_fit_into_three_megabytes(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", updates=300))
    page, _ = report(variations(run, 40, 5), tmp_path / "out")
    assert (tmp_path / "out" / "report.html").stat().st_size < 3 * 10**6
    assert "/somewhere/with/a/rather/long/path/group_039/seed_4" in page.texts
    assert "The 60 pairs with the smallest p of 780" in page.text
    assert "Only the first 28 of 40 groups are drawn" in page.text


def test_one_seed_has_a_winner_in_speed_alone(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", **PARALLEL)
    page, text = report(loaded(tmp_path / "runs"), tmp_path / "out")
    assert "[n/a]" in page.texts
    assert "(within the run)" in page.texts
    assert "Final reward (one seed)" in text  # in one line instead of a row for each pair
    assert not re.search(r"\| Final reward \|[^|]*\|[^|]*\| \*\*", text)
    rows = [line for line in text.splitlines() if line.startswith("|") and "is ahead" in line]
    assert {line.split("|")[1].strip() for line in rows} == {"Average FPS"}


def test_seeds_are_drawn_alone_where_one_of_them_has_no_reward(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / "runs" / f"a{seed}", seed=seed)
        write_run(tmp_path / "runs" / f"b{seed}", seed=seed, **PARALLEL)
    log = log_of(tmp_path / "runs" / "a2")
    log.write_text(re.sub(r'"rollout/episodes": \d+', '"rollout/episodes": 7', log.read_text()))
    runs = loaded(tmp_path / "runs")
    a, b = sorted(compare(runs).sets[0].groups, key=lambda group: group.mode, reverse=True)
    assert (a.mode, b.seed_curves) == ("sequential", {})
    assert {"reward_steps", "reward_hours"} == a.seed_curves.keys() == b.curves.keys() - a.curves.keys()
    assert [seed for seed, _ in a.seed_curves["reward_steps"]] == [1, 3]
    for seed, curve in a.seed_curves["reward_steps"]:
        (run,) = (run for run in a.runs if run.seed == seed)
        known = run.history.episodes >= 100
        values = np.interp(curve.x, run.history.step[known], run.history.reward[known])
        np.testing.assert_allclose(curve.mean, values)
    page, text = report(runs, tmp_path / "out")
    assert f"No mean, because a seed has no reward: {a.label}; single seeds are drawn instead." in text
    charts = page.text
    assert all((f"{a.label}, seed {seed}" in charts) == (seed != 2) for seed in (1, 2, 3))


def test_winners_where_the_interval_leaves_zero_out(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / "runs" / f"a{seed}", seed=seed, noise=1.0, fps=1000.0 + seed)
        write_run(tmp_path / "runs" / f"b{seed}", seed=seed, noise=1.0, fps=2000.0 + seed, n_epochs=2)
    _, text = report(loaded(tmp_path / "runs"), tmp_path / "out")
    winner = r"\*\*PPO Sequential, n\\_epochs 2\*\*"
    assert re.search(rf"\| Average FPS \| PPO Sequential, n\\_epochs 2 \| [^|]+ \| {winner} \|", text)
    assert re.search(r"\| Final reward \| [^|]+ \| [^|]+ \| no difference shown \|", text)


@pytest.mark.parametrize(
    ("task", "protocol", "at"),
    [
        (("coinrun", "easy", 200, 0), "easy-200-train", (25_000_000, 9.50, 0.05)),
        (("coinrun", "easy", 0, 77), "easy-all", (5_000_000, 6.59, 1.74)),
        (("coinrun", "hard", 500, 0), "hard-500-train", (100_000_000, 7.52, 0.15)),
        (("coinrun", "hard", 0, 0), "hard-all", (5_000_000, 6.15, 0.05)),
        (("coinrun", "easy", 500, 0), None, None),
        (("coinrun", "easy", 200, 1), None, None),
        (("coinrun", "extreme", 0, 0), None, None),
        (("CartPole-v1", None, None, None), None, None),
    ],
)
def test_published_curves_only_of_the_same_task(task: Any, protocol: str | None, at: Any) -> None:
    curve = published_curve(*task)
    assert (curve.protocol if curve else None) == protocol
    if curve:
        assert curve.at(at[0]) == at[1:]
        assert (curve.at(1), curve.at(1e12)) == (None, None)


def test_published_curves_of_every_game_and_between_their_points() -> None:
    for game in GAMES:
        seen, unseen = (published_curve(game, "easy", 200, 0, unseen=which) for which in (False, True))
        assert seen is not None
        assert unseen is not None
        assert list(seen.steps) == sorted(set(seen.steps))
        assert (len(seen.steps), unseen.protocol) == (13, "easy-200-test")
    curve = published_curve("coinrun", "easy", 200, 0)
    assert curve is not None
    assert curve.at(375_000) == pytest.approx(((5.93 + 6.79) / 2, (0.16 + 0.12) / 2))
    steps, means = curve.up_to(375_000)
    assert (list(steps), means[-1]) == ([250_000, 375_000], pytest.approx(6.36))


@pytest.mark.parametrize(
    ("settings", "updates", "words"),
    [
        ({}, 150, "Dashed grey: published PPO"),
        ({}, 40, "begins at 250,000 steps, later than these runs"),
        ({"num_levels": 100}, 150, None),
        ({"name": "procgen-maze-v0", "distribution_mode": "hard"}, 150, None),
    ],
)
def test_the_published_curve_is_drawn_where_it_matches(
    tmp_path: Path, settings: dict[str, Any], updates: int, words: str | None
) -> None:
    write_run(tmp_path / "runs" / "a", updates=updates, **settings)
    page, _ = report(loaded(tmp_path / "runs"), tmp_path / "out")
    assert ("PPO (published)" in page.texts) == (words is not None and "Dashed" in words)  # in a legend
    assert ("1912.01588" in page.text) == (words is not None)
    assert words is None or words in page.text


def test_the_command_writes_it_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "run.json").write_text("{")
    assert compare_any([tmp_path / "runs"], tmp_path / "out", 5.0, 7) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"Report: {tmp_path / 'out' / 'report.html'}"
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert f"rlcb compare {tmp_path / 'runs'} --output {tmp_path / 'out'} --seed 7 --reward-threshold 5" in page.texts
    assert f"left out: {tmp_path / 'runs' / 'b'}: unknown algorithm and mode" in page.text
    assert "0.1.0, commit 0123456789ab" in page.texts
    for name in ("report.md", "runs.csv", "comparison.csv", "comparison.json", "comparison_report.txt"):
        assert f"Written: {tmp_path / 'out' / name}" in printed


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_version_names_the_commit_of_its_own_checkout(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.check_output(["git", *who, "-C", tmp_path, *arguments], text=True)

    (tmp_path / "src").mkdir()
    assert code_version(tmp_path / "src") == __version__
    git("init", "-q")
    (tmp_path / "src" / "file").write_text("1")
    git("add", ".")
    git("commit", "-qm", "x")
    commit = git("rev-parse", "HEAD")[:12]
    code_version.cache_clear()
    assert code_version(tmp_path / "src") == __version__  # inside a repository, but not its root
    assert code_version(tmp_path) == f"{__version__}+g{commit}"
    assert code_version(tmp_path) == f"{__version__}+g{commit}"
    (tmp_path / "src" / "file").write_text("2")
    code_version.cache_clear()
    assert code_version(tmp_path) == f"{__version__}+g{commit}.dirty"
    code_version.cache_clear()
