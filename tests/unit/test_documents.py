"""The Markdown documents: links and anchors hold, the site's navigation is complete, tables agree with the files."""

import csv
import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.processes import ROOT
from rlcb.config.load import build_config
from rlcb.config.plan import computed_division, threads_each
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.envs.families import score_range

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PAGES = sorted(ROOT.glob("docs/*.md"))
CONFIGS = sorted((ROOT / "config").glob("*.yaml"))
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors_of(path: Path) -> set[str]:
    """The anchors of a document's headings, as a code host makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", _FENCED.sub("", text_of(path)), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for link in _LINK.findall(_FENCED.sub("", text_of(document))):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (document.parent / target).resolve() if target else document
        assert path.exists(), f"{document.name}: {link}"
        assert path.is_relative_to(ROOT), f"{document.name}: {link}"
        assert not anchor or anchor in anchors_of(path), f"{document.name}: {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_begins_with_a_title_and_a_paragraph(document: Path) -> None:
    title, blank, first, *_ = text_of(document).splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert re.match(r"[\w*`\[\"]", first), f"{document.name} begins with: {first[:60]}"
    assert len(re.findall(r"^# ", _FENCED.sub("", text_of(document)), re.MULTILINE)) == 1


def test_the_tables_of_recipes_are_those_of_the_data() -> None:
    command = [sys.executable, ROOT / "docs" / "results" / "tables.py"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.removesuffix(" |") for line in printed if line.startswith("| ")]
    lines = text_of(ROOT / "docs" / "results.md").splitlines()
    assert len(rows) > 80
    assert [row for row in rows if not any(line.startswith(row) for line in lines)] == []


def results_of(name: str) -> list[dict[str, str]]:
    """The rows of a CSV file of docs/results."""
    with (ROOT / "docs" / "results" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def paragraphs_with(words: str) -> list[str]:
    """The paragraphs and table rows of README.md and docs/results.md that contain these words, each in one line."""
    texts = [text_of(ROOT / "README.md"), text_of(ROOT / "docs" / "results.md")]
    parts = (part for text in texts for part in re.split(r"\n\n|\n(?=\|)", text))
    return [joined for part in parts if words in (joined := " ".join(part.split()))]


def test_the_share_of_games_stands_beside_its_criterion() -> None:
    rows = [row for row in results_of("procgen16_5m_games.csv") if row["metric"] == "late_reward"]
    assert {row["n"] for row in rows} == {"1"}
    within = alone = 0
    for row in rows:
        low, high = score_range(row["game"], "easy") or (0.0, 1.0)
        away, deviations = abs(float(row["difference"])), 3 * float(row["published_std"])
        within += away <= max(deviations, 0.1 * (high - low))
        alone += away <= deviations
    claims = paragraphs_with(f"{within} of {len(rows)} games")
    assert len(claims) == 3
    for claim in claims:
        for condition in ("one seed", "± 3 standard deviations", "10 %", "5 M|[Ff]ive million|5 million"):
            assert re.search(condition, claim), claim
        assert re.search(rf"by the standard deviations alone,? (in )?{alone}\b", claim), claim


def test_what_a_shorter_horizon_did_is_said_with_the_runs_it_is_about() -> None:
    rows = [row for row in results_of("search.csv") if row["game"] == "coinrun" and int(row["seed"]) > 100]
    assert not paragraphs_with("no run of the searches")
    (claim,) = paragraphs_with("made training steadier")
    for short, words in ((True, "the {} runs of the searches"), (False, "the {} with 0.999")):
        ends = [float(row["late_reward"]) for row in rows if row["variant"].startswith("discount-99") is short]
        assert words.format(len(ends)) in claim
        assert f"between {min(ends):.2f} and {max(ends):.2f}" in claim


# The site


def pages_in(nav: Any) -> list[str]:
    """The files that a navigation lists, in order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_in(part)]


def test_the_navigation_lists_every_page_once() -> None:
    site = yaml.load(text_of(ROOT / "mkdocs.yml"), yaml.BaseLoader)  # knows no tags, and runs nothing
    listed = pages_in(site["nav"])
    of_the_root = {"index.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
    assert sorted(listed) == sorted({page.name for page in PAGES} | of_the_root)


def test_every_diagram_has_its_picture() -> None:
    found = [source for page in PAGES for source in re.findall(r"^```mermaid\n(.*?)^```$", text_of(page), re.S | re.M)]
    names = {hashlib.sha256(source.encode()).hexdigest()[:12] for source in found}
    assert names == {path.stem for path in (ROOT / "docs/diagrams").glob("*.svg")}, "see scripts/diagrams.py"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    python = ROOT / ".venv-docs/bin/python"
    if not python.exists():
        pytest.skip("`make docs` has not been run here; it builds the site as strictly")
    command = [str(python), "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").glob("*.html"):  # a reader's browser loads nothing from another host
        assert not re.search(r"<(?:script|img|iframe)[^>]*\ssrc=\"?(?:https?:)?//", text_of(page)), page.name
        assert not re.search(r"<link[^>]*rel=\"?stylesheet\"?[^>]*href=\"?(?:https?:)?//", text_of(page)), page.name


# Tables of docs/presets.md


def rows_below(title: str) -> list[list[str]]:
    """The rows of the table in a section of docs/presets.md, without its head."""
    section = text_of(ROOT / "docs/presets.md").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def preset(file: Path) -> tuple[str, str, Config]:
    """The algorithm, the mode and the settings of a configuration file."""
    algorithm, mode = file.stem.split("_")[0], "parallel" if "_parallel" in file.stem else "sequential"
    return algorithm, mode, build_config(file, {}, mode=mode, algorithm=algorithm)


def row_of(file: Path) -> list[str]:
    """What the table of presets should say of a configuration file."""
    algorithm, mode, config = preset(file)
    envs = workers = str(config.env.num_envs)
    if mode == "parallel":
        count, each = config.parallel.num_workers, config.parallel.num_envs_per_worker
        workers = f"auto: {envs}" if count == "auto" else f"{count} {ALGORITHMS[algorithm].worker}s × {each} = {envs}"
    hardware, training = config.hardware, config.training
    threads = hardware.num_threads
    extras = [f"{threads} thread{'s' if threads > 1 else ''}"] if threads else []
    extras += [hardware.precision] if hardware.precision != "fp32" else []
    rollout = config.env.num_envs * training.n_steps
    numbers = [str(training.n_steps), f"{rollout:,}", f"{config.minibatch_size:,}", str(training.n_epochs)]
    mantissa, exponent = f"{training.learning_rate:e}".split("e")
    rate = f"{float(mantissa):g}e{int(exponent)}" + (" → 0" if training.lr_schedule == "linear" else "")
    return [f"`{file.stem}`", workers, *numbers, rate, training.network, ", ".join([hardware.device, *extras])]


def test_the_table_of_presets_is_that_of_the_files() -> None:
    assert sorted(rows_below("Presets")) == sorted(row_of(file) for file in CONFIGS)


@pytest.mark.parametrize("file", CONFIGS, ids=lambda path: path.stem)
def test_the_page_names_presets_for_other_tasks_than_coinrun(file: Path) -> None:
    _, _, config = preset(file)
    task, steps = config.env.name, config.training.total_timesteps
    usual = (task, config.env.num_levels, config.env.distribution_mode) == ("procgen-coinrun-v0", 200, "easy")
    if not usual or steps != 25_000_000:
        assert f"`{file.stem}` ({task}, {steps:,} steps)" in text_of(ROOT / "docs/presets.md")


@pytest.mark.parametrize("row", rows_below("Cores → workers × environments"), ids=lambda row: row[0])
def test_the_table_of_cores_is_what_auto_decides(row: list[str]) -> None:
    cores = int(row[0])
    for algorithm, cell in (("ppo", row[1]), ("a2c", row[1]), ("impala", row[2])):
        _, _, config = preset(ROOT / f"config/{algorithm}_parallel.yaml")
        division = computed_division(config, cores)
        learners = f" + {division.learners}" if division.learners else ""
        threads = threads_each(division.workers, division.learners, cores)
        assert cell == f"{division.workers} × {config.env.num_envs // division.workers}{learners}, {threads}"
