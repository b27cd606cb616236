"""The command that lists names: parses, calls, prints."""

from __future__ import annotations

import fnmatch
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl.cli.common import answering_mistakes

if TYPE_CHECKING:
    from pfdl.objectives import ObjectiveInfo

WIDTH = 100


def list_names(
    what: Annotated[str, typer.Argument(metavar="objectives|backbones", help="What to list.")],
    pattern: Annotated[str, typer.Argument(help="A wildcard, in quotes: 'resnet*'.")] = "*",
) -> None:
    """List the objectives or backbones that can be named.

    An objective is shown with what it does, what it needs, its settings (--set NAME.SETTING=VALUE) and its paper.
    Objectives can be joined: irm+pfdl.
    """
    from pfdl._internal.validation import check_choice

    with answering_mistakes():
        check_choice("what to list", what, ("objectives", "backbones"))
        if what == "backbones":
            from pfdl.vision.backbones import list_backbones

            lines = list_backbones(pattern)
        else:
            from pfdl.objectives import list_objectives

            chosen = [one for one in list_objectives() if fnmatch.fnmatch(one.name, pattern)]
            indent = max((len(one.name) for one in chosen), default=0) + 1
            lines = [_describe(one, indent) for one in chosen]
        if not lines:
            raise ValueError(f"no {what} match {pattern!r}; 'pfdl list {what}' shows all.")
        typer.echo("\n".join(lines))


def _describe(objective: ObjectiveInfo, indent: int) -> str:
    """Return what an objective is, needs and can be set to, as one line or a few."""
    facts = [
        objective.summary or "(no description)",
        f"Needs {' and '.join(objective.needs) or 'nothing else'}.",
        f"Settings: {', '.join(objective.settings)}." if objective.settings else "No settings.",
    ]
    if objective.reference and objective.reference not in objective.summary:
        facts.append(f"({objective.reference})")
    first, rest = objective.name.ljust(indent), " " * indent
    return textwrap.fill(" ".join(facts), WIDTH, initial_indent=first, subsequent_indent=rest)
