"""Fixtures for pages in a real browser, and a name that would do harm if it were read as HTML."""

import shutil
from pathlib import Path

import pytest

HOSTILE = "<script>window.hacked = true</script>"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
UNUSED = ("gpu", "quic", "background-networking", "component-update", "sync")
FLAGS = ("--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in UNUSED))
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield launched
        launched.close()


class Visit:
    """A page that was opened from a file, and everything that went wrong or left the machine."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(
            **{"viewport": {"width": 1200, "height": 800}, **options}
        )
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def style_of(self, selector, what="color"):
        return self.page.locator(selector).first.evaluate(
            f"element => getComputedStyle(element)['{what}']"
        )


@pytest.fixture
def visit(browser):
    opened = []

    def open_page(path, **options):
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield open_page
    for one in opened:
        one.context.close()


def faults(visit, path):
    """Return what keeps somebody from reading a page: pictures without words, text whose contrast
    is below that of WCAG AA, in light and dark, and what is wider than a phone.
    """
    found = []
    for scheme in ("light", "dark"):
        page = visit(path, color_scheme=scheme).page
        found += [f"{scheme}: {one}" for one in page.evaluate(CONTRAST)]
    found += [
        f"no words for {picture}"
        for picture in page.locator("img:not([alt]), img[alt='']").evaluate_all(
            "all => all.map(one => one.getAttribute('src').slice(0, 60))"
        )
    ]
    width = visit(path, **PHONE).page.evaluate("document.documentElement.scrollWidth")
    if width > PHONE["viewport"]["width"]:
        found.append(f"a phone must scroll sideways: {width} pixels")
    return found
