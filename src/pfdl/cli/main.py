"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from pfdl.cli.diagnose import diagnose
from pfdl.cli.listing import list_names
from pfdl.cli.models import evaluate, export, predict, refit
from pfdl.cli.options import add_command
from pfdl.cli.sweep import sweep
from pfdl.cli.train import split, train

ENTRY_POINTS = "pfdl.commands"
"""Where a package names commands of its own: each is a function for Typer, or a Typer application."""

LABORATORY = ("demo", "report", "reproduce", "study")
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train,
    "sweep": sweep,
    "refit": refit,
    "evaluate": evaluate,
    "predict": predict,
    "diagnose": diagnose,
    "export": export,
    "list": list_names,
    "split": split,
}


class Commands(typer.core.TyperGroup):
    """The commands, and for those of the laboratory where it is not installed the line that installs it."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name; None if there is none."""
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in LABORATORY:
            typer.echo(f"Error: 'pfdl {cmd_name}' belongs to the laboratory: pip install pfdl-lab", err=True)
            raise typer.Exit(2)
        return found


app = typer.Typer(
    cls=Commands,
    name="pfdl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # of docstrings: their paragraphs are broken at the width of the terminal
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add_commands() -> None:
    """Add the library's commands, then those of other packages."""
    for name, command in COMMANDS.items():
        add_command(app, name, command)
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            add_command(app, entry.name, entry.load())
        except Exception as error:  # another package's mistake must not take our commands away
            typer.echo(f"Note: the command {entry.name!r} of {entry.value} cannot be used: {error}", err=True)


_add_commands()


def _show_version(wanted: bool) -> None:
    if wanted:
        from pfdl import __version__

        typer.echo(f"pfdl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Partial Feature Decorrelation Learning: train models that hold up where the data shifts."""


def main() -> None:
    """Run the command line; a user's mistake is answered with a sentence, not a traceback."""
    app()


if __name__ == "__main__":
    main()
