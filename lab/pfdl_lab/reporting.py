"""``pfdl report``: one page from any number of run folders, as HTML or as Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from pfdl._internal.files import read_json, write_atomically
from pfdl.runs import Run, read_run, version_of
from pfdl_lab.colored_mnist import section as colored_mnist
from pfdl_lab.images import section as images
from pfdl_lab.mmads import readings_section as readings, section as mmads
from pfdl_lab.report import markdown, trainings
from pfdl_lab.report.blocks import Block, Heading, Listing, Section, Table, TableLine, Text, render
from pfdl_lab.report.reading import RESULTS, find_runs, read_results

Builder = Callable[[Run, list[str]], Section]

SECTIONS: Mapping[str, Builder] = {
    one.KIND: one.build for one in (mmads, readings, colored_mnist, images)
}
"""From the kind of a run to what makes its section; a builder adds a sentence to its list for what
it cannot read.
"""

TABLE = "table.md"
MAX_ROWS, MAX_COLUMNS = 200, 16
"""So much is shown of results that nobody made a section for."""

_FIRST = ("command", "started", "pfdl", "git_revision", "python", "torch")
_NAMES = {"git_revision": "git revision", "cpu_count": "cores", "gpu": "GPU", "cpu": "CPU"}


class Written(NamedTuple):
    """What a page says.

    Attributes:
        problems: A sentence for everything that could not be read; the page has them, too.
        findings: Where they are asked for, the title of a section and the sentence that says what
            was found.
    """

    problems: list[str]
    findings: dict[str, str]


def write_report(
    paths: Sequence[Path],
    output: Path,
    *,
    title: str = "pfdl report",
    preface: str = "",
    with_findings: bool = False,
) -> Written:
    """Write one page about the runs in some folders.

    Args:
        paths: Run folders, and folders that hold run folders.
        output: The file to write; it is there whole or not at all. A name that ends in ``.md``
            gives Markdown: of a page that is there already, everything above the line that begins
            with ``<!-- All below`` is kept.
        title: Name of the page.
        preface: A paragraph before everything else.
        with_findings: Whether an HTML page says in a sentence what each experiment found. That is
            for the demonstration; what other runs show, a person writes.

    Returns:
        What could not be read, and what was found.

    Raises:
        ValueError: If there are no runs at all.
        OSError: If the page cannot be written.
    """
    problems = list[str]()
    runs = find_runs(paths, problems)
    if not runs:
        raise ValueError(" ".join(["there is nothing to report.", *problems]))
    as_markdown = output.suffix == ".md"
    sections = build_sections(runs, problems, with_commands=as_markdown)
    sections = [section if with_findings else replace(section, finding="") for section in sections]
    if as_markdown:
        *names, name = (path.name if path.is_absolute() else str(path) for path in (*paths, output))
        command = f"pfdl report {' '.join(names)} -o {name}"
        # The last: how the runs were made
        shown = markdown.render(sections[:-1], level=2, prefix=f"{output.stem}-")
        tables = "".join(f"> {problem}\n\n" for problem in dict.fromkeys(problems)) + shown.text
        before = output.read_text(encoding="utf-8") if output.exists() else ""
        text = markdown.replace_tables(before, tables, command)
        markdown.Markdown(text.lstrip(), shown.pictures).write(output)
    else:
        now = datetime.now(timezone.utc)
        made = f"Made by pfdl {version_of('pfdl')} on {now:%d %B %Y, %H:%M} UTC."
        introduction = [*([Text(preface)] if preface else []), *_introduction(runs, problems)]
        page = render(
            title, introduction, sections, f"{made} This file needs nothing from the network."
        )
        write_atomically(output, page)
    return Written(
        problems, {section.title: section.finding for section in sections if section.finding}
    )


def write_tables(folder: Path) -> tuple[Section, list[Path]]:
    """Write the tables and plots of a run into its folder, as Markdown with pictures.

    Args:
        folder: The run folder.

    Returns:
        What the page holds; and the results, the page and its pictures.
    """
    run, problems = read_run(folder), list[str]()
    section = _with_command(_build(run, problems), run)
    section = replace(
        section, blocks=[*(Text(problem, "warning") for problem in problems), *section.blocks]
    )
    return section, [folder / RESULTS, *markdown.render([section]).write(folder / TABLE)]


def build_sections(
    runs: Sequence[Run], problems: list[str], *, with_commands: bool = False
) -> list[Section]:
    """Build a section for each run of an experiment, one for all trainings, and one that says how
    they were made.
    """
    experiments = [run for run in runs if run.kind != trainings.KIND]
    single = [run for run in runs if run.kind == trainings.KIND]
    sections = [_named(_build(run, problems), run, experiments) for run in experiments]
    if with_commands:
        sections = [
            _with_command(section, run) for section, run in zip(sections, experiments, strict=True)
        ]
    if single:
        sections.append(trainings.build(single, problems))
    return [*sections, _provenance(runs)]


def _build(run: Run, problems: list[str]) -> Section:
    try:
        return SECTIONS.get(run.kind, _build_unknown)(run, problems)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Settings are whatever the file says; one run that says nonsense must not cost the page of
        # all others.
        problems.append(
            f"{run.folder} does not hold what a run of the kind {run.kind!r} should ({error!r})."
        )
        return Section(
            f"{run.folder} ({run.kind})", [Text("This run could not be shown.", "warning")]
        )


def _build_unknown(run: Run, problems: list[str]) -> Section:
    """Show the results of a kind of run that has no section of its own as they stand."""
    results = read_results(run, names=[], numbers=[], keys=[], problems=problems)
    title = f"{run.folder.resolve().name} ({run.kind})"
    if not len(results):
        return Section(title, [Text("No finished results yet.", "warning")])
    shown = results.iloc[:MAX_ROWS, :MAX_COLUMNS]
    first, *others = (
        str(name).removeprefix("user_attrs_").removeprefix("params_") for name in shown.columns
    )
    words = [
        [f"{one:.6g}" if isinstance(one, float) else str(one) for one in line]
        for line in shown.to_numpy(object)
    ]
    rows = [TableLine(line[0], tuple(line[1:])) for line in words]
    note = f"All {results.shape[0]} lines and {results.shape[1]} columns are in {RESULTS}."
    chosen = run.folder / "chosen.json"  # by pfdl sweep
    blocks: list[Block] = (
        [Text(f"Chosen: {read_json(chosen)['candidate']}.")] if chosen.is_file() else []
    )
    return Section(title, [*blocks, Table("Results as they stand", first, others, rows, note=note)])


def _named(section: Section, run: Run, runs: Sequence[Run]) -> Section:
    """Let the heading say which run it is, where several are of one kind."""
    if sum(other_run.kind == run.kind for other_run in runs) == 1 or run.kind not in SECTIONS:
        return section
    return replace(section, title=f"{section.title}: {run.folder.resolve().name}")


def _with_command(section: Section, run: Run) -> Section:
    command = run.settings.get("command")
    return replace(section, blocks=[*([Text(f"`{command}`")] if command else []), *section.blocks])


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
        Text("What is needed to reproduce these results. Settings are as config.json has them.")
    ]
    for run in runs:
        blocks += [
            Heading(f"{run.folder} ({run.kind})"),
            Listing("Command, versions, hardware", "\n".join(_facts(run))),
            Listing("Settings", json.dumps(run.settings, indent=2, ensure_ascii=False)),
        ]
    return Section("How the runs were made", blocks)


def _facts(run: Run) -> list[str]:
    flat = {"command": run.settings.get("command")}
    for name, value in run.made_with.items():
        flat |= value if isinstance(value, Mapping) else {name: value}
    order = sorted(flat, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    return [f"{_NAMES.get(name, name)}: {_words(flat[name])}" for name in order]


def _words(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
