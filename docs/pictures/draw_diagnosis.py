"""Walk from a folder to a diagnosis, and keep what docs/tutorials/diagnosis.md shows.

Run it by ``python docs/pictures/draw_diagnosis.py``. It runs the commands of that page in a folder
of its own, writes what they print to ``docs/tutorials/diagnosis-printed/``, from which the page
quotes, keeps the page of the first diagnosis as a sample, and takes ``front.png`` of it, for which
it needs Playwright and Chromium.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from pfdl.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGE, KEPT = (
    ROOT / "docs" / "tutorials" / "diagnosis.md",
    ROOT / "docs" / "tutorials" / "diagnosis-printed",
)
FRONT = ROOT / "docs" / "pictures" / "front.png"
SAMPLE = ROOT / "docs" / "_static" / "diagnosis.html"
TIMES = r" \([0-9.]+ s\)$|^The whole training takes .*\n"
SHOWN = """() => document.body.replaceChildren(
    document.querySelector("p.yes"), ...[...document.querySelectorAll(".gallery")].slice(0, 4)
)"""
"""Leaves of the page the answer, and some images of each context."""


def main() -> None:
    """Walk the page in an empty folder."""
    lines = re.findall(r"^\$ (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number, (program, *arguments) in enumerate(map(shlex.split, lines), start=1):
            if program == "python":
                runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
                continue
            result = CliRunner().invoke(app, arguments, catch_exceptions=False)
            without_times = re.sub(TIMES, "", result.output, flags=re.MULTILINE)
            (KEPT / f"{number}-{arguments[0]}.txt").write_text(without_times, encoding="utf-8")
        shutil.copyfile("diagnosis.html", SAMPLE)
        os.chdir(ROOT)
    photograph(SAMPLE)


def photograph(path: Path) -> None:
    """Take a picture of what is to be seen first."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 820, "height": 800})
        page.goto(path.as_uri())
        page.evaluate(SHOWN)
        page.screenshot(path=FRONT)
        browser.close()
    Image.open(FRONT).convert("RGB").quantize(128).save(FRONT, optimize=True)


if __name__ == "__main__":
    main()
