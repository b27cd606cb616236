"""``pfdl report``: one page from any number of run folders, as HTML or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd

from pfdl._internal.files import read_json, write_atomically
from pfdl.runs import Run, read_run, version_of
from pfdl_lab import readout, register, spuco_mnist
from pfdl_lab.colored_mnist import section as colored_mnist
from pfdl_lab.images import section as images
from pfdl_lab.leaks import section as leaks
from pfdl_lab.mmads import section as mmads
from pfdl_lab.report import markdown, trainings
from pfdl_lab.report.blocks import Block, Listing, Section, Table, Text, render, table_of
from pfdl_lab.report.reading import RESULTS, Columns, find_runs, read_results, task_files

SECTIONS: Mapping[str, Any] = {
    one.KIND: one for one in (mmads, colored_mnist, images, readout, spuco_mnist, leaks)
}
"""From the kind of a run to the module that makes its section from its table; the columns that the
table must have are the module's, too.
"""

Tables = Mapping[Path, pd.DataFrame]
"""By their run folder, the tables of runs that this process has just made."""

TABLE = "table.md"
MAX_ROWS = 200
MAX_COLUMNS = 16
"""So much is shown of results that nobody made a section for."""


def write_report(
    paths: Sequence[Path],
    output: Path,
    *,
    title: str = "pfdl report",
    tables: Tables | None = None,
) -> list[str]:
    """Write one page about the runs in some folders.

    Args:
        paths: Run folders, and folders that hold run folders.
        output: The file to write; it is there whole or not at all. A name that ends in ``.md``
            gives Markdown.
        title: Name of the page.
        tables: Tables of runs, by their folders; others are read.

    Returns:
        A sentence for everything that could not be read; the page has them, too.

    Raises:
        ValueError: If there are no runs at all.
        OSError: If the page cannot be written.
    """
    problems = list[str]()
    runs = _runs(paths, problems)
    sections = build_sections(runs, problems, tables)
    introduction = _introduction(runs, problems)
    if output.suffix == ".md":
        page = markdown.render([Section(title, introduction), *sections], prefix=f"{output.stem}-")
        page.write(output)
    else:
        now = datetime.now(timezone.utc)
        made = f"Made by pfdl {version_of('pfdl')} on {now:%d %B %Y, %H:%M} UTC."
        closing = f"{made} This file needs nothing from the network."
        write_atomically(output, render(title, introduction, sections, closing))
    return problems


def print_report(paths: Sequence[Path]) -> list[str]:
    """Print the words and tables about the runs in some folders; return what could not be read.

    Raises:
        ValueError: If there are no runs at all.
    """
    problems = list[str]()
    runs = _runs(paths, problems)
    *sections, _ = build_sections(runs, problems)
    for section in sections:
        markdown.print_section(section)
    return problems


def _runs(paths: Sequence[Path], problems: list[str]) -> list[Run]:
    runs = find_runs(paths, problems)
    if not runs:
        raise ValueError(" ".join(["there is nothing to report.", *problems]))
    return runs


def write_tables(folder: Path, results: pd.DataFrame) -> tuple[Section, list[Path]]:
    """Write the tables and plots of a run into its folder, as Markdown with pictures.

    Args:
        folder: The run folder.
        results: Its table.

    Returns:
        What the page holds; and the results, the page and its pictures.
    """
    problems = list[str]()
    section = _build(read_run(folder), results, problems)
    warnings = [Text(problem, "warning") for problem in problems]
    section = replace(section, blocks=[*warnings, *section.blocks])
    return section, [folder / RESULTS, *markdown.render([section]).write(folder / TABLE)]


def build_sections(
    runs: Sequence[Run], problems: list[str], tables: Tables | None = None
) -> list[Section]:
    """Build a section for each run of an experiment, one for all trainings, and one that says how
    they were made.
    """
    experiments = [run for run in runs if run.kind != trainings.KIND]
    single = [run for run in runs if run.kind == trainings.KIND]
    known = tables or {}
    sections = []
    for run in experiments:
        results = known.get(run.folder)
        if results is None:
            results = read_results(run, _columns(run.kind), problems)
        sections.append(_named(_build(run, results, problems), run, experiments))
    if single:
        sections.append(trainings.build(single, problems))
    return [*sections, _provenance(runs)]


def _columns(kind: str) -> Columns:
    return SECTIONS[kind].COLUMNS if kind in SECTIONS else Columns()


def _build(run: Run, results: pd.DataFrame, problems: list[str]) -> Section:
    """Build the section of a run from its table; where it holds declarations, with their tests."""
    build = SECTIONS[run.kind].build if run.kind in SECTIONS else _build_unknown
    if not len(results):
        build = _build_nothing
    try:
        section: Section = build(run, _columns(run.kind).check(results))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Settings are whatever the file says; one run that says nonsense must not cost the page of
        # all others.
        problems.append(
            f"{run.folder} does not hold what a run of the kind {run.kind!r} should ({error!r})."
        )
        return Section(
            f"{run.folder} ({run.kind})", [Text("This run could not be shown.", "warning")]
        )
    first: list[Block] = []
    if command := run.settings.get("command"):
        first.append(Text(f"`{command}`"))
    if done := len(task_files(run)):
        words = f"Unfinished: {done} more tasks are done since a table was written."
        first.append(Text(f"{words} The same command resumes.", "warning"))
    return replace(section, blocks=[*first, *register.blocks(run.folder), *section.blocks])


def _build_nothing(run: Run, _: pd.DataFrame) -> Section:
    return Section(_title(run), [Text("No finished results yet.", "warning")])


def _title(run: Run) -> str:
    known = run.kind in SECTIONS
    return SECTIONS[run.kind].TITLE if known else f"{run.folder.resolve().name} ({run.kind})"


def _build_unknown(run: Run, results: pd.DataFrame) -> Section:
    """Show the results of a kind of run that has no section of its own as they stand."""
    chosen = run.folder / "chosen.json"  # by pfdl sweep
    blocks: list[Block] = []
    if chosen.is_file():
        blocks.append(Text(f"Chosen: {read_json(chosen)['candidate']}."))
    parts = results.groupby("table") if "table" in results else [("", results)]
    for name, part in parts:
        table = part.drop(columns="table", errors="ignore").dropna(axis=1, how="all")
        blocks.append(_as_it_stands(table, f"{name}: " * bool(name)))
    return Section(_title(run), blocks)


def _as_it_stands(results: pd.DataFrame, name: str) -> Table:
    shown = results.iloc[:MAX_ROWS, :MAX_COLUMNS]
    shown.columns = shown.columns.str.removeprefix("user_attrs_").str.removeprefix("params_")
    note = f"{name}{results.shape[0]} lines and {results.shape[1]} columns in all."
    indexed = shown.set_index(shown.columns[0])
    return table_of(f"{name}results as they stand", indexed, digits=6, note=note)


def _named(section: Section, run: Run, runs: Sequence[Run]) -> Section:
    """Let the heading say which run it is, where several are of one kind."""
    if sum(other_run.kind == run.kind for other_run in runs) == 1 or run.kind not in SECTIONS:
        return section
    return replace(section, title=f"{section.title}: {run.folder.resolve().name}")


def _introduction(runs: Sequence[Run], problems: Sequence[str]) -> list[Block]:
    many = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    text = (
        f"Results of {many}. A dash is what was not run or not printed; below each table stands"
        " what its ± means."
    )
    return [Text(text), *(Text(problem, "warning") for problem in dict.fromkeys(problems))]


def _provenance(runs: Sequence[Run]) -> Section:
    """Say how every run was made: command, versions, revision, hardware, and its settings, among
    them the seeds.
    """
    blocks: list[Block] = [
        Text("What is needed to reproduce these results, as config.json has it.")
    ]
    for run in runs:
        for title, facts in (("Versions and hardware", run.made_with), ("Settings", run.settings)):
            text = json.dumps(facts, indent=2, ensure_ascii=False)
            blocks.append(Listing(f"{title} of {run.folder} ({run.kind})", text))
    return Section("How the runs were made", blocks)
