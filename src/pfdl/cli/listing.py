"""The command that lists names: parses, calls, prints."""

from __future__ import annotations

import fnmatch
import textwrap
from typing import Annotated

import typer

WIDTH = 100
LISTS = ("objectives", "backbones", "settings")


def list_names(
    what: Annotated[str, typer.Argument(metavar="|".join(LISTS), help="What to list.")],
    pattern: Annotated[str, typer.Argument(help="A wildcard, in quotes: 'resnet*'.")] = "*",
) -> None:
    """List the objectives, backbones or settings of pfdl train that can be named.

    An objective is shown with what it does, what it needs, its settings (--set NAME.SETTING=VALUE) and its paper.
    Objectives can be joined: irm+pfdl.
    """
    from pfdl._internal.validation import check_choice

    check_choice("what to list", what, LISTS)
    if what == "backbones":
        from pfdl.vision.backbones import list_backbones

        lines = list_backbones(pattern)
    else:
        lines = _in_columns(_describe_objectives() if what == "objectives" else _describe_settings(), pattern)
    if not lines:
        raise ValueError(f"no {what} match {pattern!r}; 'pfdl list {what}' shows all.")
    typer.echo("\n".join(lines))


def _describe_objectives() -> dict[str, str]:
    from pfdl.objectives import list_objectives

    described = {}
    for one in list_objectives():
        facts = [
            one.summary or "(no description)",
            f"Needs {' and '.join(one.needs) or 'nothing else'}.",
            f"Settings: {', '.join(one.settings)}." if one.settings else "No settings.",
            f"({one.reference})" if one.reference and one.reference not in one.summary else "",
        ]
        described[one.name] = " ".join(filter(None, facts))
    return described


def _describe_settings() -> dict[str, str]:
    from dataclasses import fields

    from pfdl._internal.settings import describe_settings
    from pfdl.cli.train import RunOptions
    from pfdl.vision.config import DataOptions, TrainingConfig

    described = {}
    for kind in (TrainingConfig, DataOptions, RunOptions):
        words = describe_settings(kind)
        for one in fields(kind):
            if one.metadata:
                typed = f"--{one.name.replace('_', '-')}" if one.metadata["shown"] else f"--set {one.name}=VALUE"
                described[one.name] = f"{words[one.name]} Default {one.default}. {typed}"
    return described


def _in_columns(described: dict[str, str], pattern: str) -> list[str]:
    """Return names and what they are in two columns, as lines of the width of a terminal."""
    chosen = {name: words for name, words in described.items() if fnmatch.fnmatch(name, pattern)}
    indent = max(map(len, chosen), default=0) + 1
    return [
        textwrap.fill(words, WIDTH, initial_indent=name.ljust(indent), subsequent_indent=" " * indent)
        for name, words in chosen.items()
    ]
