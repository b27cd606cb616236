"""``pfdl demo``: the three experiments, small enough for minutes on two cores, and one page about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import joblib
from rich.console import Console

from pfdl.experiments.colored_mnist import run as colored_mnist
from pfdl.experiments.contexts import run as contexts
from pfdl.experiments.mmads import run as mmads
from pfdl.experiments.reporting import Written, write_report
from pfdl.experiments.workers import Workers

TITLE = "PFDL where correlations break"
PREFACE = (
    "A demonstration in minutes on a processor: fewer repetitions, smaller networks and other images than the paper's. "
    "It shows what each experiment is, and how far so small a run can tell methods apart. The commands pfdl reproduce "
    "without --quick run the published protocols."
)
COMMAND = "pfdl demo"
MAX_TRAININGS = 4
"""At a time: each needs more than a gigabyte of memory."""


DIGITS = replace(colored_mnist.QUICK, rows=("grayscale", "erm", "erm-pfdl", "irm", "irm-pfdl-1"))
IMAGES = replace(contexts.QUICK, rows=("resnet", "pfdl"), per_cell=60, batch_size=32, epochs=5, decay_every=4, seeds=3)
"""Larger than quick, until plain training learnt something and lost it where backgrounds change, whatever PFDL did."""


@dataclass(frozen=True)
class Sizes:
    """How large the three experiments are."""

    tables: mmads.MMADSConfig = mmads.QUICK
    digits: colored_mnist.ColoredMNISTConfig = DIGITS
    images: contexts.ContextsConfig = IMAGES


def run(folder: Path, console: Console, sizes: Sizes | None = None) -> tuple[Path, Written]:
    """Run what is missing of the three experiments, each in a run folder of its own, and write the page.

    Args:
        folder: Where the run folders and ``report.html`` go. An interrupted demonstration resumes there.
        console: Where to say what is being done.
        sizes: How large they are; the usual ones if not given.

    Returns:
        The page, and what it found.

    Raises:
        ValueError: If a folder holds another run.
    """
    sizes = sizes or Sizes()
    parts = [folder / name for name in ("mmads", "colored-digits", "contexts")]
    console.print("1 of 3: linear models on tables that were selected with a bias (MMADS)")
    mmads.run(sizes.tables, parts[0], console=console, command=COMMAND)
    console.print("2 of 3: digits whose colours turn round (scikit-learn's, in place of MNIST)")
    colored_mnist.run(
        sizes.digits, parts[1], folder=None, device="cpu", workers=Workers(-1), console=console, command=COMMAND
    )
    console.print("3 of 3: generated shapes whose backgrounds change, with and without PFDL (the longest part)")
    at_once = min(MAX_TRAININGS, joblib.cpu_count())
    contexts.run(sizes.images, contexts.Images(), parts[2], workers=Workers(at_once), console=console, command=COMMAND)
    page = folder / "report.html"
    return page, write_report(parts, page, title=TITLE, preface=PREFACE)
