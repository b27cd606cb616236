"""``pfdl demo``: the three experiments, small enough for minutes on two cores, and one page about
them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import joblib
from rich.console import Console

from pfdl.data.mmads import SETTINGS
from pfdl_lab.colored_mnist import run as colored_mnist
from pfdl_lab.colored_mnist.rows import CHOOSING
from pfdl_lab.images import run as images
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.images.data import ImageData
from pfdl_lab.mmads import run as mmads
from pfdl_lab.reporting import Written, write_report
from pfdl_lab.workers import Execution

TITLE = "PFDL where correlations break"
PREFACE = (
    "The paper's three experiments in small: fewer repetitions, smaller networks and other images"
    " than the paper's. The commands pfdl reproduce without --quick run the published protocols."
)
COMMAND = "pfdl demo"
JOBS, MAX_TRAININGS = -1, 4
"""At a time, one for each core; fewer trainings, as each needs more than a gigabyte of memory."""

TABLES = replace(mmads.QUICK, cells=(mmads.FIGURE_CELL,), settings=SETTINGS[:1], seeds=4)
"""The paper's own setting, in the cell of its figure."""

DIGITS = replace(
    colored_mnist.QUICK,
    rows=("grayscale", "erm", "irm", "irm-pfdl-1", *(row.key for row in CHOOSING["GroupDRO"])),
)
IMAGES = ImagesConfig(
    rows=("erm", "pfdl"),
    seeds=3,
    backbone="small",
    image_size=32,
    epochs=12,
    decay_every=8,
    batch_size=32,
)
"""Large enough that plain training learns something and loses it where backgrounds change, whatever
PFDL does.
"""


def run(folder: Path, console: Console) -> tuple[Path, Written]:
    """Run what is missing of the three experiments, each in a run folder of its own, and write the
    page.

    Args:
        folder: Where the run folders and ``report.html`` go. An interrupted demonstration resumes
            there.
        console: Where to say what is being done.

    Returns:
        The page, and what it found.

    Raises:
        ValueError: If a folder holds another run.
    """
    execution = Execution(JOBS, console=console, command=COMMAND)
    parts = [folder / name for name in ("mmads", "colored-digits", "images")]
    console.print("1 of 3: linear models on tables that were selected with a bias (MMADS)")
    of_tables = mmads.run(TABLES, parts[0], execution)
    console.print(
        "2 of 3: digits whose colours are reversed in the test (scikit-learn's, in place of MNIST)"
    )
    of_digits = colored_mnist.run(DIGITS, parts[1], folder=None, execution=execution)
    console.print("3 of 3: generated shapes whose backgrounds change, with and without PFDL")
    at_once = min(MAX_TRAININGS, joblib.effective_n_jobs(JOBS))
    shapes = [ImageData("shapes")]
    of_images = images.run(IMAGES, shapes, parts[2], replace(execution, jobs=at_once))
    page = folder / "report.html"
    tables = dict(zip(parts, (of_tables, of_digits, of_images), strict=True))
    return page, write_report(
        parts, page, title=TITLE, preface=PREFACE, tables=tables, with_findings=True
    )
