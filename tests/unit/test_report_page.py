"""The page of a report in a real browser: curves that react, sizes and colours, access without a mouse, updates."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.browser import Browser, browser_page
from helpers.run_directories import write_evaluation, write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.run_status import RunStatus
from rlcb.report.compare import write_report
from rlcb.report.figures import kept_points
from rlcb.report.progress import Progress
from rlcb.report.sections import Origin

pytestmark = pytest.mark.xdist_group("report")

CHART = "report_1_reward_steps"
FIGURE = f"document.querySelector('[data-chart={CHART}]')"
# Everything that a reader may want to see or use, with the contrast of its text; 18.66 px bold or 24 px count as large.
TEXTS = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, place) => sum + v * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest("script, svg, button:disabled")) continue;
    const style = getComputedStyle(node), one = light(parse(style.color)), other = light(behind(node));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) found.push([node.tagName, node.textContent.slice(0, 40), ratio]);
  }
  return found;
})()"""
STRUCTURE = """(() => {
  const faults = [], all = (what) => [...document.querySelectorAll(what)];
  for (const mark of ["header", "main", "nav[aria-label]"]) if (all(mark).length !== 1) faults.push(mark);
  let last = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const level = Number(heading.tagName[1]);
    if (level > last + 1) faults.push(`heading ${heading.textContent}`);
    last = level;
  }
  if (all("h1").length !== 1) faults.push("h1");
  for (const table of all("table")) {
    if (!table.caption?.textContent.trim()) faults.push("table without a caption");
    if ([...table.querySelectorAll("th")].some((head) => !head.scope)) faults.push("header without a scope");
    if ([...table.tBodies[0].rows].some((row) => row.cells[0].tagName !== "TH")) faults.push("row without a header");
  }
  for (const button of all("button")) {
    if (!(button.getAttribute("aria-label") || button.textContent).trim()) faults.push("button without a name");
  }
  if (all("svg:not([role=img][aria-label])").length) faults.push("svg");
  if (all("[tabindex]:not(pre, [aria-label])").length) faults.push("focus without a name");
  const ids = all("[id]").map((one) => one.id);
  if (new Set(ids).size !== ids.length) faults.push("ids");
  if (!document.documentElement.lang || !document.title) faults.push("language or title");
  return faults;
})()"""


def write_page(folder: Path, progress: Progress | None = None) -> Path:
    """A report of two groups of three seeds, and of an unfinished run of another length."""
    if not (folder / "runs").exists():
        for seed in (1, 2, 3):
            for name, more in (("a", {}), ("b", {"n_epochs": 2, "fps": 1500.0})):
                path = write_run(folder / "runs" / f"{name}{seed}", seed=seed, updates=150, noise=0.5, **more)
                write_evaluation(path, 7.0 + 0.1 * seed, 6.0 + 0.2 * seed)
    runs = load_runs([folder / "runs"], lambda _: None)
    origin = Origin(runs, [], "rlcb compare runs", datetime(2026, 5, 4, tzinfo=UTC), progress)
    write_report(compare(runs), folder, origin)
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a finished study."""
    return write_page(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def shared_browser() -> Iterator[Browser]:
    with browser_page() as found:
        yield found


@pytest.fixture
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """The browser; fails if a page complained or asked for anything but itself."""
    shared_browser.complaints.clear()
    shared_browser.requests.clear()
    yield shared_browser
    assert shared_browser.complaints == []
    assert all(
        address.startswith("file://") and address.endswith("/report.html") for address in shared_browser.requests
    )
    shared_browser.run("localStorage.clear(), sessionStorage.clear()")


def show_chart(browser: Browser) -> list[float]:
    """Scroll to the curves and wait until they are drawn; returns where they are on the screen."""
    browser.run(f"{FIGURE}.scrollIntoView({{block: 'center'}})")
    browser.wait(f"{FIGURE}.querySelector('.u-over')?.clientWidth")
    place: list[float] = browser.run(
        f"(({{left, top, width, height}}) => [left, top, width, height])"
        f"({FIGURE}.querySelector('.u-over').getBoundingClientRect())"
    )
    return place


def shown_range(browser: Browser) -> tuple[float, float]:
    """The part of the x-axis that is visible."""
    low, high = browser.run(f"(({{min, max}}) => [min, max])(charts.chart('{CHART}').uplot.scales.x)")
    return low, high


def point(place: list[float], x: float, y: float = 0.5) -> tuple[float, float]:
    """A point in parts of the chart's width and height."""
    return place[0] + x * place[2], place[1] + y * place[3]


def drag(browser: Browser, start: tuple[float, float], end: tuple[float, float]) -> None:
    browser.mouse("mouseMoved", *start)
    browser.mouse("mousePressed", *start, buttons=1)
    browser.mouse("mouseMoved", (start[0] + end[0]) / 2, start[1], buttons=1)
    browser.mouse("mouseMoved", *end, buttons=1)
    browser.mouse("mouseReleased", *end)


def test_values_under_the_pointer_are_those_of_the_curves(page: Path, browser: Browser) -> None:
    browser.open(page)
    place = show_chart(browser)
    browser.mouse("mouseMoved", *point(place, 0.5))
    tip = f"{FIGURE}.querySelector('.tip')"
    browser.wait(f"!{tip}.hidden")
    lines = browser.run(f"[...{tip}.children].map((line) => line.textContent)")
    assert lines[0].startswith("Environment steps: ")
    data = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', page.read_text())[0])
    curves = data["views"][0]["curves"]
    assert len(lines) == 1 + len(curves) == 4
    assert re.fullmatch(r"PPO \(published\): [\d.]+", lines[3])
    step = browser.run(f"charts.chart('{CHART}').uplot.data[0][charts.chart('{CHART}').uplot.cursor.idx]")
    for line in lines[1:3]:
        curve = next(one for one in curves if line.startswith(f"{one['label']}: "))
        mean, low, high = (float(text) for text in re.findall(r"[\d.]+", line.removeprefix(curve["label"])))
        for value, name in ((mean, "mean"), (low, "low"), (high, "high")):
            assert value == pytest.approx(np.interp(step, curve["x"], curve[name]), rel=1e-3)
    browser.mouse("mouseMoved", 2, 2)
    browser.wait(f"{tip}.hidden")


def test_zoom_by_dragging_and_back(page: Path, browser: Browser) -> None:
    browser.open(page)
    place = show_chart(browser)
    whole = shown_range(browser)
    drag(browser, point(place, 0.25), point(place, 0.75))
    browser.wait(f"{FIGURE}.querySelector('.buttons button:enabled[title=\"Show the full range\"]')")
    low, high = shown_range(browser)
    width = whole[1] - whole[0]
    assert (low, high) == pytest.approx((whole[0] + 0.25 * width, whole[0] + 0.75 * width), abs=0.03 * width)
    for count in (1, 2):
        browser.mouse("mousePressed", *point(place, 0.5), clickCount=count)
        browser.mouse("mouseReleased", *point(place, 0.5), clickCount=count)
    browser.wait(f"charts.chart('{CHART}').state.range === null")
    assert shown_range(browser) == whole
    drag(browser, point(place, 0.25), point(place, 0.75))
    browser.wait(f"charts.chart('{CHART}').state.range !== null")
    browser.run(f"charts.chart('{CHART}').resetButton.click()")
    assert shown_range(browser) == whole


def test_curves_on_and_off_and_over_time(page: Path, browser: Browser) -> None:
    browser.open(page)
    show_chart(browser)
    legend = f"{FIGURE}.querySelectorAll('.legend button')"
    browser.run(f"{legend}[0].click()")
    assert browser.run(f"[...{legend}].map((one) => one.ariaPressed)") == ["false", "true", "true"]
    series = f"charts.chart('{CHART}').uplot.series.map((one) => one.show)"
    assert browser.run(series) == [True, False, False, False, *[True] * 6]
    browser.run(f"{FIGURE}.querySelectorAll('.bar button')[1].click()")
    assert browser.run(f"charts.chart('{CHART}').view.x") == "Wall-clock time"
    assert browser.run(series) == [True, False, False, False, True, True, True]
    browser.run(f"{legend}[0].click()")
    assert browser.run(series) == [True] * 7
    alone = "dispatchEvent(new MouseEvent('click', {shiftKey: true}))"
    browser.run(f"{legend}[1].{alone}")
    assert browser.run(f"[...{legend}].map((one) => one.ariaPressed)") == ["false", "true"]
    browser.run(f"{legend}[1].{alone}")
    assert browser.run(series) == [True] * 7


def test_everything_works_without_a_mouse(page: Path, browser: Browser) -> None:
    browser.open(page)
    show_chart(browser)
    whole = shown_range(browser)
    browser.run(f"{FIGURE}.querySelector('.plot').focus()")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    said = browser.run(f"{FIGURE}.querySelector('[aria-live]').textContent")
    assert re.match(r"[\d.]+ k?: PPO Sequential", said), said
    browser.key("+")
    low, high = shown_range(browser)
    assert high - low < 0.6 * (whole[1] - whole[0])
    browser.key("End")
    assert shown_range(browser)[1] == pytest.approx(whole[1])
    browser.key("Escape")
    assert shown_range(browser) == whole
    browser.key("Tab")
    assert browser.run("document.activeElement.closest('.legend') !== null")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.key(" ")
    assert browser.run("document.activeElement.ariaPressed") == "false"


GRID = {False: (223, 227, 232), True: (51, 58, 67)}  # the colour of a chart's lines by whether it is dark
DRAWN_IN = """(() => {{
  const canvas = document.querySelector(".plot canvas"), copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d", {{ willReadFrequently: true }});
  context.drawImage(canvas, 0, 0);
  const points = context.getImageData(0, 0, copy.width, copy.height).data;
  for (let at = 0; at < points.length; at += 4) {{
    if (points[at] === {0} && points[at + 1] === {1} && points[at + 2] === {2} && points[at + 3] === 255) return true;
  }}
  return false;
}})()"""


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_at_every_width_and_in_both_colours(
    page: Path, browser: Browser, width: int, dark: bool, tmp_path: Path
) -> None:
    browser.open(page, width, 900, dark)
    place = show_chart(browser)
    assert browser.run("document.documentElement.scrollWidth") == width
    assert 0.6 * width < place[2] + 150 < width + 150
    assert browser.run(TEXTS) == []
    assert browser.run(STRUCTURE) == []
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert browser.run(DRAWN_IN.format(*GRID[dark]))
    assert not browser.run(DRAWN_IN.format(*GRID[not dark]))
    browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") != paper
    assert browser.run(DRAWN_IN.format(*GRID[not dark]))  # the chart follows the reader's choice
    assert not browser.run(DRAWN_IN.format(*GRID[dark]))
    assert browser.run(TEXTS) == []
    browser.picture(tmp_path / "page.png")


def test_paper_has_the_pictures_in_light_colours(page: Path, browser: Browser) -> None:
    browser.open(page, dark=True)
    show_chart(browser)
    browser.run("document.getElementById('theme').click(), document.getElementById('theme').click()")
    visible = "[...document.querySelectorAll('{}')].map((one) => one.checkVisibility())"
    assert browser.run(visible.format(".drawn > .picture")) == [False]
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run(visible.format(".interactive")) == [False]
    assert all(browser.run(visible.format(".picture")))
    assert not any(browser.run(visible.format("button")))
    assert browser.run("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.call("Emulation.setEmulatedMedia", media="")


def test_without_scripts_there_are_the_pictures(page: Path, browser: Browser) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        assert browser.run("document.querySelectorAll('.interactive').length") == 0
        assert browser.run("[...document.querySelectorAll('svg')].every((one) => one.checkVisibility())")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_page_that_updates_itself_stays_as_it_was(tmp_path: Path, browser: Browser) -> None:
    browser.open(write_page(tmp_path, Progress("0 of 6 runs finished", [], 0.2)))
    # Paused whenever it is loaded; a reload that had begun before it was paused would start its clock anew.
    browser.wait("document.getElementById('pause').ariaPressed === 'true' || document.getElementById('pause').click()")
    browser.wait("document.getElementById('pause').ariaPressed === 'true' && performance.now() > 1000")
    place = show_chart(browser)
    drag(browser, point(place, 0.25), point(place, 0.75))
    button = f"{FIGURE}.querySelectorAll('.legend button')[1]"
    browser.run(f"{button}.click(), document.querySelector('details summary').click()")
    browser.run(f"{button}.focus({{preventScroll: true}})")
    before = state_of(browser)
    assert before["open"] == before["hidden"] == 1
    # Everything is done now: the page is loaded once more, and then not again.
    write_page(tmp_path)
    loads = browser.loads
    browser.run(f"document.getElementById('pause').click(), {button}.focus({{preventScroll: true}})")
    browser.wait_for_load(loads)
    assert browser.run("document.querySelector('.progress, [data-refresh]')") is None
    assert state_of(browser) == pytest.approx(before, abs=2)


def test_a_page_loads_itself_until_everything_is_done(tmp_path: Path, browser: Browser) -> None:
    page = write_page(tmp_path, Progress("0 of 6 runs finished, 1 running", [RunStatus("a", state="running")], 0.2))
    assert '<noscript><meta http-equiv="refresh" content="1"></noscript>' in page.read_text()
    browser.open(page)
    loads = browser.loads
    browser.wait_for_load(loads + 2)
    browser.wait("document.querySelector('[role=status]').textContent.startsWith('0 of 6 runs finished, 1 running. ')")
    write_page(tmp_path)
    browser.wait("document.readyState === 'complete' && !document.documentElement.dataset.refresh")
    browser.run("new Promise((after) => requestAnimationFrame(() => requestAnimationFrame(after)))")
    assert browser.run("document.getElementById('under-way')") is None


def state_of(browser: Browser) -> dict[str, Any]:
    """What a reader has done to the page, as numbers."""
    show = f"charts.chart('{CHART}')"
    browser.wait(f"{show}.uplot")
    found: dict[str, Any] = browser.run(f"""({{
        low: {show}.state.range[0], high: {show}.state.range[1],
        low_drawn: {show}.uplot.scales.x.min, high_drawn: {show}.uplot.scales.x.max,
        hidden: {show}.state.hidden.length, shown: Number({show}.uplot.series[4].show),
        open: document.querySelectorAll("details[open]").length,
        focus: [...{FIGURE}.querySelectorAll("button")].indexOf(document.activeElement),
        place: {FIGURE}.getBoundingClientRect().top,
    }})""")
    return found


def test_axe_finds_no_fault(page: Path, browser: Browser) -> None:
    program = os.environ.get("AXE_CORE")
    if not program:
        pytest.skip("AXE_CORE is not set to the file axe.min.js of axe-core (npm pack axe-core)")
    for width, dark in ((1400, False), (400, True)):
        browser.open(page, width, 900, dark)
        show_chart(browser)
        browser.run(Path(program).read_text() + "; 0")
        faults = browser.run("axe.run().then((found) => found.violations.map((one) => [one.id, one.nodes[0].html]))")
        assert faults == []


def test_fewer_points_keep_the_ends_and_the_extremes() -> None:
    values = np.sin(np.linspace(0, 20, 5000))
    values[1234], values[4321], values[10] = 9.0, -9.0, np.nan
    kept = kept_points(values, 100)
    assert len(kept) <= 100
    assert {0, 1234, 4321, 4999} <= set(kept)
    assert list(kept) == sorted(set(kept))
