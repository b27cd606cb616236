"""The command that lists names: parses, calls, prints."""

from __future__ import annotations

from typing import Annotated

import typer

from pfdl.cli.common import answering_mistakes


def list_names(
    what: Annotated[str, typer.Argument(metavar="objectives|backbones", help="What to list.")],
    pattern: Annotated[str, typer.Argument(help="A wildcard, in quotes: 'resnet*'.")] = "*",
) -> None:
    """List the objectives or backbones that can be named; objectives can be joined: irm+pfdl."""
    import fnmatch

    from pfdl._internal.validation import check_choice

    with answering_mistakes():
        check_choice("what to list", what, ("objectives", "backbones"))
        if what == "backbones":
            from pfdl.vision.backbones import list_backbones

            names = list_backbones(pattern)
        else:
            from pfdl.objectives import list_objectives

            names = fnmatch.filter([one.name for one in list_objectives()], pattern)
        if not names:
            raise ValueError(f"no {what} match {pattern!r}; 'pfdl list {what}' shows all.")
        typer.echo("\n".join(names))


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("list")(list_names)
