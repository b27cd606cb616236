"""``pfdl report``: one page from any number of run folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from pfdl._internal.files import write_atomically
from pfdl._internal.provenance import version_of
from pfdl._internal.runs import Run
from pfdl.experiments.colored_mnist import section as colored_mnist
from pfdl.experiments.contexts import section as contexts
from pfdl.experiments.mmads import section as mmads
from pfdl.experiments.study import section as study
from pfdl.report.page import Block, Page, Section, Text, render
from pfdl.report.reading import find_runs
from pfdl.report.sections import other, provenance, training

Builder = Callable[[Run, list[str]], Section]

SECTIONS: Mapping[str, Builder] = {one.KIND: one.build for one in (mmads, colored_mnist, contexts, study)}
"""From the kind of a run to what makes its section; a builder adds a sentence to its list for what it cannot read."""


class Written(NamedTuple):
    """What a page says.

    Attributes:
        problems: A sentence for everything that could not be read; the page has them, too.
        findings: For each section that has one, its title and what the reader should take home.
    """

    problems: list[str]
    findings: dict[str, str]


def write_report(paths: Sequence[Path], output: Path, *, title: str = "pfdl report", preface: str = "") -> Written:
    """Write one HTML page about the runs in some folders.

    Args:
        paths: Run folders, and folders that hold run folders.
        output: The file to write; it is there whole or not at all.
        title: Name of the page.
        preface: A paragraph before everything else.

    Returns:
        What could not be read, and what was found.

    Raises:
        ValueError: If there are no runs at all.
        OSError: If the page cannot be written.
    """
    found = find_runs(paths)
    if not found.runs:
        raise ValueError(" ".join(["there is nothing to report.", *found.problems]))
    problems = list(found.problems)
    sections = build_sections(found.runs, problems)
    now = datetime.now(timezone.utc)
    footer = (
        f"Made by pfdl {version_of('pfdl')} on {now:%d %B %Y, %H:%M} UTC. This file needs nothing from the network."
    )
    introduction = [*([Text(preface)] if preface else []), *_introduction(found.runs, problems)]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, render(Page(title, introduction, sections, footer)))
    return Written(problems, {section.title: section.finding for section in sections if section.finding})


def build_sections(runs: Sequence[Run], problems: list[str]) -> list[Section]:
    """A section for each run of an experiment, one for all trainings, and one that says how they were made."""
    experiments = [run for run in runs if run.kind != training.KIND]
    trainings = [run for run in runs if run.kind == training.KIND]
    sections = [_named(_build(run, problems), run, experiments) for run in experiments]
    if trainings:
        sections.append(training.build(trainings, problems))
    return [*sections, provenance.build(runs, problems)]


def _build(run: Run, problems: list[str]) -> Section:
    try:
        return SECTIONS.get(run.kind, other.build)(run, problems)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Settings are whatever the file says; one run that says nonsense must not cost the page of all others.
        problems.append(f"{run.folder} does not hold what a run of the kind {run.kind!r} should ({error!r}).")
        return Section(f"{run.folder} ({run.kind})", [Text("This run could not be shown.", "warning")])


def _named(section: Section, run: Run, runs: Sequence[Run]) -> Section:
    """Where several runs are of one kind, the heading says which."""
    if sum(other_run.kind == run.kind for other_run in runs) == 1 or run.kind not in SECTIONS:
        return section
    return Section(f"{section.title}: {run.folder.resolve().name}", section.blocks, section.finding)


def _introduction(runs: Sequence[Run], problems: Sequence[str]) -> list[Block]:
    many = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    text = (
        f"Results of {many}. A dash stands for what was not run or not printed; ± is a standard error where nothing "
        "else is said."
    )
    return [Text(text), *(Text(problem, "warning") for problem in dict.fromkeys(problems))]
