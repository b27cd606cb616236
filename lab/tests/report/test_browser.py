"""The report in a real browser, from a file, as a reader would open it. Skipped where there is no Chromium."""

import shutil
from itertools import pairwise

import pytest

from pfdl.report.blocks import Heading, Page, Section, Text
from pfdl.report.page import render
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Missing, Number, Row, Table
from pfdl_lab.reporting import write_report

from .made_up import HOSTILE, make_all

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

TABLE = Table(
    f"Accuracy {HOSTILE}",
    "method",
    ["1:5", HOSTILE],
    [Row("ERM & co", (Number(40.1, 0.3), Missing())), Row("in the paper", (Number(41.31, digits=2), "x"), quiet=True)],
)
PLOT = Plot(
    f"Accuracy by ratio {HOSTILE}",
    "It rises.",
    "ratio",
    "accuracy, %",
    [Series(HOSTILE, ["1:5", "5:1"], [40.0, 50.0], [1.0, 2.0]), Series("PFDL", ["1:5", "5:1"], [41.0, 51.0])],
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def small_page(tmp_path_factory):
    """One table, one plot, hostile names."""
    sections = [
        Section("First", [Text(HOSTILE), TABLE, PLOT], finding="It rises."),
        Section("Second", [Heading("More")]),
    ]
    path = tmp_path_factory.mktemp("page") / "small page.html"
    path.write_text(render(Page(f"A page {HOSTILE}", [], sections, "The end.")), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def whole_page(tmp_path_factory):
    """A report with a section of every kind."""
    folder = tmp_path_factory.mktemp("report")
    written = write_report([make_all(folder / "runs")], folder / "report.html")
    assert written.problems == []
    return folder / "report.html"


class Visit:
    """A page that was opened, and everything that went wrong or left the machine."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def clipboard(self):
        return self.page.evaluate("navigator.clipboard.readText()")

    def colour_of(self, selector, what="color"):
        return self.page.locator(selector).first.evaluate(f"element => getComputedStyle(element)['{what}']")


@pytest.fixture
def visit(browser):
    opened = []

    def open_page(path, **options):
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield open_page
    for one in opened:
        one.context.close()


def test_loads_quietly_and_asks_nothing_of_the_network(visit, whole_page):
    seen = visit(whole_page)
    seen.page.wait_for_selector(".plot svg")
    assert seen.complaints == []
    assert seen.requests == [whole_page.as_uri()]


def test_a_page_is_small(whole_page):
    assert whole_page.stat().st_size < 1_000_000


def test_every_plot_is_drawn_and_described(visit, whole_page):
    page = visit(whole_page).page
    drawn = page.locator(".plot").evaluate_all(
        "plots => plots.map(plot => [plot.querySelectorAll('.trace').length,"
        " document.getElementById(plot.querySelector('svg[role=img]').getAttribute('aria-labelledby')).textContent,"
        " plot.querySelectorAll('[role=img]').length])"
    )
    assert len(drawn) > 10
    assert all(lines > 0 and len(words) > 20 and pictures == 1 for lines, words, pictures in drawn)


def test_a_name_that_is_a_script_is_shown_and_not_run(visit, small_page, whole_page):
    seen = visit(small_page)
    page = seen.page
    page.wait_for_selector(".plot svg")
    assert page.evaluate("window.hacked") is None
    assert page.title() == f"A page {HOSTILE}"
    for place in (
        "h1",
        "section p >> nth=1",
        "caption >> nth=0",
        "thead th >> nth=2",
        "figcaption",
        ".legend span >> nth=0",
    ):
        assert HOSTILE in page.locator(place).first.text_content()
    # At once, unlike a turn of the wheel: a pointer that comes before the scrolling is done hovers over nothing.
    page.evaluate("document.querySelector('.plot').scrollIntoView({block: 'center', behavior: 'instant'})")
    page.locator(".plot .points path").first.hover(force=True)
    assert HOSTILE in page.locator(".tooltip").text_content()
    assert seen.complaints == []
    whole = visit(whole_page)
    assert whole.page.locator("th", has_text=HOSTILE).count() > 0
    assert whole.page.evaluate("window.hacked") is None


def test_hovering_tells_the_figures(visit, small_page):
    page = visit(small_page).page
    page.locator(".plot").scroll_into_view_if_needed()
    page.locator(".plot .trace >> nth=0").locator(".points path >> nth=1").hover(force=True)
    assert "50.0 ± 2.0" in page.locator(".tooltip").text_content()


@pytest.mark.parametrize("clipboard_is_refused", [False, True])
def test_copies_latex_and_csv_and_says_so(visit, small_page, clipboard_is_refused):
    seen = visit(small_page)
    page = seen.page
    if clipboard_is_refused:
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
    for name, expected in (("LaTeX", TABLE.latex), ("CSV", TABLE.csv)):
        button = page.locator(".table button", has_text=f"Copy as {name}").first
        handle = button.element_handle()
        button.click()
        page.get_by_text(f"Copied: Copy as {name}").wait_for(state="attached")
        assert seen.clipboard() == expected
        assert handle.text_content() == "Copied"
    assert page.locator("#announcer").get_attribute("aria-live") == "polite"


def test_the_keyboard_skips_to_the_results_and_reaches_what_can_be_done(visit, small_page):
    seen = visit(small_page)
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
        if reached[-1] == "Copy as LaTeX":
            assert "solid" in seen.colour_of("button:focus", "outlineStyle")
            page.keyboard.press("Enter")
            page.get_by_text("Copied: Copy as LaTeX").wait_for(state="attached")
    assert seen.clipboard() == TABLE.latex
    assert "Copy as CSV" in reached
    assert "The figures of this plot" in reached


@pytest.mark.parametrize("system", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(visit, small_page, system):
    seen = visit(small_page, color_scheme=system)
    page, other = seen.page, {"light": "dark", "dark": "light"}[system]

    def look():
        plot = seen.colour_of(".plot .legend span"), seen.colour_of(".plot .xtick text", "fill")
        return page.evaluate("document.documentElement.dataset.theme"), seen.colour_of("body", "backgroundColor"), plot

    before = look()
    page.get_by_role("button", name=f"{other} colours").click()
    after = look()
    assert (before[0], after[0]) == (system, other)
    assert before[1] != after[1]
    assert before[2] != after[2]  # plots, too
    page.reload()
    page.wait_for_selector(".plot svg")
    assert look() == after  # remembered


def test_a_phone_scrolls_tables_in_their_boxes_and_nothing_else(visit, whole_page):
    page = visit(whole_page, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True).page
    page.wait_for_selector(".plot svg")
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    widest = page.locator(".scroll").evaluate_all("boxes => Math.max(...boxes.map(box => box.scrollWidth))")
    assert widest > 360
    assert page.locator(".scroll").evaluate_all("boxes => boxes.every(box => box.clientWidth <= 360)")


def test_paper_is_light_and_holds_the_whole_width(visit, small_page):
    seen = visit(small_page, color_scheme="dark")
    page = seen.page
    page.evaluate(
        "window.addEventListener('beforeprint', () => { window.themeOnPaper = document.documentElement.dataset.theme;"
        " window.widthOnPaper = document.querySelector('.plot svg').clientWidth; })"
    )
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.evaluate("[window.themeOnPaper, window.widthOnPaper]") == ["light", 660]
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()


def test_headings_tables_and_names_are_in_order(visit, whole_page):
    page = visit(whole_page).page
    levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(one => Number(one.tagName[1]))")
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate("[...document.querySelectorAll('table')].every(one => one.caption.textContent.trim())")
    assert page.evaluate(
        "[...document.querySelectorAll('th')].every(one => one.scope === 'col' || one.scope === 'row')"
    )
    names = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(names) == len(set(names))
    labels = page.locator("[aria-labelledby]").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-labelledby'))"
    )
    assert set(labels) <= set(names)
    links = page.locator("nav a").evaluate_all("all => all.map(one => one.getAttribute('href').slice(1))")
    assert len(links) == levels.count(2)
    assert all(page.locator(f"h2#{link}").count() == 1 for link in links)
    reasons = page.locator("td.missing").all_text_contents()
    assert {"–without PFDL", "–not in the paper"} <= set(reasons)
    assert page.evaluate("document.documentElement.lang") == "en"


def test_without_javascript_all_tables_are_there(visit, whole_page):
    page = visit(whole_page, java_script_enabled=False).page
    assert page.locator("noscript p, main > p.warning").count() > 0
    assert page.locator("main table").first.is_visible()
    assert not page.locator("button").first.is_visible()
