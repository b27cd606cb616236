"""A page in a real browser, from a file, as a reader would open it. Skipped where there is no
Chromium.
"""

from itertools import pairwise

import pytest
from tests.browsing import HOSTILE, PHONE, needs_browser

from pfdl_lab.report import blocks

pytestmark = needs_browser

WIDE = [f"r = {rate}" for rate in range(14)]
TABLE = blocks.Table(
    f"Accuracy {HOSTILE}",
    "method",
    [*WIDE, HOSTILE],
    [
        blocks.TableLine(
            "ERM & co",
            (*(blocks.Number(40.1, 0.3) for _ in WIDE), blocks.Missing("not in the paper")),
        ),
        blocks.TableLine(
            "in the paper", (*(blocks.Number(41.31, digits=2) for _ in WIDE), HOSTILE), quiet=True
        ),
    ],
)


def draw(axes):
    for height, name in enumerate((HOSTILE, 'a "name" & $\\bad{$')):
        axes.errorbar([0, 1], [height, 1 + height], [0.1, 0.2], label=name)
    axes.set_xticks([0, 1], ["1:5", HOSTILE])
    axes.set_xlabel(f"ratio $x$ {HOSTILE}")
    axes.legend()


FIGURES = blocks.Table(
    "Figures",
    "line",
    ["1:5", HOSTILE],
    [blocks.TableLine(HOSTILE, (blocks.Number(40.0, 1.0), blocks.Number(50.0, 2.0)))],
)
PLOT = blocks.Plot(f"Accuracy by ratio {HOSTILE}", "It rises where the ratio does.", draw, FIGURES)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """One block of every kind, twice, with hostile names."""
    parts = [
        blocks.Text(HOSTILE),
        TABLE,
        PLOT,
        blocks.Listing(HOSTILE, HOSTILE),
    ]
    sections = [
        blocks.Section("First", parts),
        blocks.Section("Second", [blocks.Heading(HOSTILE), *parts]),
    ]
    page = tmp_path_factory.mktemp("page") / "small page.html"
    page.write_text(blocks.render(f"A page {HOSTILE}", [], sections, "The end."), encoding="utf-8")
    return page


def test_loads_quietly_runs_no_script_and_asks_nothing_of_the_network(visit, path):
    seen = visit(path)
    assert seen.complaints == []
    assert [one for one in seen.requests if not one.startswith("data:")] == [path.as_uri()]
    assert seen.page.locator("script").count() == 0
    policy = seen.page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy


def test_a_name_that_is_a_script_is_shown_and_not_run(visit, path):
    page = visit(path).page
    assert page.evaluate("window.hacked") is None
    assert page.title() == f"A page {HOSTILE}"
    for place in (
        "h1",
        ".sections p >> nth=0",
        "caption",
        "thead th >> nth=15",
        "tbody td >> nth=29",
    ):
        assert HOSTILE in page.locator(place).first.text_content()
    for place in ("h3", "figcaption", "summary", "pre"):
        assert any(HOSTILE in words for words in page.locator(place).all_text_contents())
    drawn = page.locator(".plot svg").first.locator("text").all_text_contents()
    assert {HOSTILE, f"ratio $x$ {HOSTILE}", 'a "name" & $\\bad{$'} <= set(drawn)


def test_every_plot_is_drawn_and_described(visit, path):
    page = visit(path).page
    assert page.locator(".plot[role=img] svg").count() == 2
    for box in page.locator(".plot").all():
        assert box.locator("path").count() > 10
        words = page.locator(f"[id='{box.get_attribute('aria-labelledby')}']").text_content()
        assert "It rises where the ratio does." in words
    page.locator("figure summary").first.click()
    assert page.locator("figure details table").first.is_visible()
    assert "50.0 ± 2.0" in page.locator("figure details table").first.text_content()


def test_dark_follows_the_system_in_page_and_plots_and_paper_is_light(visit, path):
    light, dark = (visit(path, color_scheme=scheme) for scheme in ("light", "dark"))

    def brightness(seen, selector, what):
        return sum(
            int(part) for part in seen.style_of(selector, what).strip("rgba()").split(",")[:3]
        )

    for selector, what in (
        ("body", "backgroundColor"),
        (".plot svg #block-1-3-patch_1 path", "fill"),
    ):
        assert brightness(light, selector, what) > 600 > 200 > brightness(dark, selector, what)
    for selector, what in (("body", "color"), (".plot svg text", "fill")):
        assert brightness(light, selector, what) < 350 < brightness(dark, selector, what)
    assert dark.page.pdf(format="A4").startswith(b"%PDF")
    dark.page.emulate_media(media="print", color_scheme="dark")
    assert not dark.page.locator("nav").is_visible()
    assert dark.style_of("body", "backgroundColor") == "rgb(253, 253, 251)"


def test_a_phone_scrolls_wide_things_in_their_boxes_and_says_so(visit, path):
    page = visit(path, **PHONE).page
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    boxes = page.locator(".scroll.many")
    assert boxes.evaluate_all(
        "boxes => boxes.every(box => box.clientWidth <= 390 && box.scrollWidth > 390)"
    )
    hint = "box => getComputedStyle(box, '::before').content"
    assert "swipe sideways" in boxes.first.evaluate(hint)
    assert visit(path).page.locator(".scroll.many").first.evaluate(hint) == "none"
    shadows = boxes.first.evaluate("box => getComputedStyle(box).backgroundAttachment")
    assert shadows == "local, local, scroll, scroll"


def test_the_keyboard_skips_to_the_results_and_reaches_what_scrolls(visit, path):
    page = visit(path).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "results"
    reached = []
    for _ in range(7):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.className || document.activeElement.tagName")
        )
    assert {"A", "scroll many", "SUMMARY"} <= set(reached)


def test_headings_are_in_order(visit, path):
    page = visit(path).page
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.locator("h1, h2, h3, h4").evaluate_all(
        "all => all.map(one => Number(one.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_tables_say_what_they_are_and_what_their_headers_are_of(visit, path):
    page = visit(path).page
    assert page.evaluate(
        "[...document.querySelectorAll('table')].every(one => one.caption.textContent.trim())"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('th')].every(one => one.scope === 'col' || one.scope ==="
        " 'row')"
    )
    assert page.locator("td.missing").first.text_content() == "–not in the paper"


def test_names_are_used_once_and_links_lead_to_headings(visit, path):
    page = visit(path).page
    names = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(names) == len(set(names))
    labels = page.locator("[aria-labelledby]").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-labelledby'))"
    )
    assert set(labels) <= set(names)
    links = page.locator("nav a").evaluate_all(
        "all => all.map(one => one.getAttribute('href').slice(1))"
    )
    assert all(page.locator(f"h2#{link}").count() == 1 for link in links)
