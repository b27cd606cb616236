"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

import fnmatch
import shutil
import signal
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Literal

import typer

from pfdl._internal.settings import describe_settings
from pfdl._internal.validation import check_choice
from pfdl.cli.diagnose import diagnose
from pfdl.cli.embed import embed
from pfdl.cli.models import evaluate, export, predict, refit
from pfdl.cli.options import add_command
from pfdl.cli.sweep import sweep
from pfdl.cli.train import RunOptions, split, train
from pfdl.vision.config import DataOptions, TrainingConfig

ENTRY_POINTS = "pfdl.commands"
"""Where a package names commands of its own: each is a function for Typer, or a Typer application.
"""

LABORATORY = ("demo", "report", "reproduce", "study")
LISTS = {
    "objectives": "what training can minimise",
    "backbones": "networks that can be trained",
    "contexts": "finders of contexts that nobody labelled",
    "settings": "what --set can change",
}


def list_names(
    what: Annotated[
        str | None, typer.Argument(metavar="|".join(LISTS), help="What to list.")
    ] = None,
    pattern: Annotated[str, typer.Argument(help="A wildcard, in quotes: 'resnet*'.")] = "*",
) -> None:
    """List the objectives, backbones, finders of contexts or settings of pfdl train that can be
    named.

    An objective is shown with what it does, what it needs, its settings (--set NAME.SETTING=VALUE)
    and its paper. Objectives can be joined: irm+pfdl.
    """
    if what is None:
        commands = {f"pfdl list {key}": words for key, words in LISTS.items()}
        typer.echo("\n".join(_in_columns(commands, "*")))
        return
    check_choice("what to list", what, LISTS)
    if what == "backbones":
        from pfdl.vision.backbones import list_backbones

        lines = list_backbones(pattern)
    else:
        describe = {
            "objectives": _describe_objectives,
            "contexts": _describe_finders,
            "settings": _describe_settings,
        }
        lines = _in_columns(describe[what](), pattern)
    if not lines:
        raise ValueError(f"no {what} match {pattern!r}; 'pfdl list {what}' shows all.")
    typer.echo("\n".join(lines))


def _describe_objectives() -> dict[str, str]:
    from pfdl.objectives import list_objectives

    described = {}
    for objective in list_objectives():
        facts = [objective.summary or "(no description)"]
        facts.append(f"Needs {' and '.join(objective.needs) or 'nothing else'}.")
        facts.append(_name_settings(objective.settings) or "No settings.")
        if objective.reference and objective.reference not in objective.summary:
            facts.append(f"({objective.reference})")
        described[objective.name] = " ".join(facts)
    return described


def _name_settings(settings: Sequence[str]) -> str:
    return f"Settings: {', '.join(settings)}." if settings else ""


def _describe_finders() -> dict[str, str]:
    from pfdl.contexts import list_contexts

    described = {}
    for finder in list_contexts():
        facts = [finder.summary or "(no description)"]
        if finder.reads == "logits":
            facts.append("Reads the logits of a first network; unchecked.")
        if finder.settings:
            facts.append(_name_settings(finder.settings))
        if finder.automatic:
            facts.append("Tried by auto.")
        described[finder.name] = " ".join(facts)
    return described


def _describe_settings() -> dict[str, str]:
    described = {}
    for kind in (TrainingConfig, DataOptions, RunOptions):
        words = describe_settings(kind)
        for field in fields(kind):
            if not field.metadata:
                continue
            typed = f"--set {field.name}=VALUE"
            if field.metadata["shown"]:
                typed = f"--{field.name.replace('_', '-')}"
            described[field.name] = f"{words[field.name]} Default {field.default}. {typed}"
    return described


def _in_columns(described: dict[str, str], pattern: str) -> list[str]:
    """Return names and what they are in two columns, as lines of the width of a terminal."""
    chosen = {name: words for name, words in described.items() if fnmatch.fnmatch(name, pattern)}
    indent = max(map(len, chosen), default=0) + 1
    width = shutil.get_terminal_size((100, 24)).columns
    return [
        textwrap.fill(
            words, width, initial_indent=name.ljust(indent), subsequent_indent=" " * indent
        )
        for name, words in chosen.items()
    ]


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "sweep": sweep,
    "refit": refit,
    "evaluate": evaluate,
    "predict": predict,
    "diagnose": diagnose,
    "embed": embed,
    "export": export,
    "list": list_names,
    "split": split,
}


class Commands(typer.core.TyperGroup):
    """The library's commands, and those of other packages, which are loaded when they are asked for
    or listed.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        self._join(entry_points(group=ENTRY_POINTS))
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name; None if there is none. Of the laboratory: say how to
        install it.
        """
        if cmd_name not in self.commands:
            offered = entry_points(group=ENTRY_POINTS)
            of_name = [entry for entry in offered if entry.name == cmd_name]
            if not of_name and cmd_name in LABORATORY:
                typer.echo(
                    f"Error: 'pfdl {cmd_name}' belongs to the laboratory, the package in the"
                    " folder 'lab' of the repository: pip install ./lab",
                    err=True,
                )
                raise typer.Exit(2)
            self._join(of_name or offered)  # all, where one that was misspelt may be meant
        return super().get_command(ctx, cmd_name)

    def _join(self, offered: Iterable[EntryPoint]) -> None:
        """Add commands of other packages; the library's own names are taken."""
        for entry in offered:
            if entry.name in self.commands:
                continue
            command = _load(entry)
            if command is not None:
                self.commands[entry.name] = command


MARKUP: Literal["markdown"] = "markdown"
"""Of docstrings: their paragraphs are broken at the width of the terminal."""

app = typer.Typer(
    cls=Commands,
    name="pfdl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    add_command(app, name, command)


@cache
def _load(entry: EntryPoint) -> Any:
    """Return the command that another package offers; None, after a note, if it cannot be used."""
    group = typer.Typer(rich_markup_mode=MARKUP)
    try:
        add_command(group, entry.name, entry.load())
        return typer.main.get_group(group).commands[entry.name]
    except Exception as error:  # another package's mistake must not take our commands away
        typer.echo(
            f"Note: the command {entry.name!r} of {entry.value} cannot be used: {error}", err=True
        )
        return None


def _show_version(wanted: bool) -> None:
    if wanted:
        from pfdl import __version__

        typer.echo(f"pfdl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Partial Feature Decorrelation Learning: train models that hold up where the data shifts."""


def main() -> None:
    """Run the command line; a user's mistake is answered with a sentence, not a traceback."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    app()


if __name__ == "__main__":
    main()
