"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from pfdl.cli import diagnose, evaluate, export, listing, predict, refit, report, reproduce, split, study, sweep, train

app = typer.Typer(
    name="pfdl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (train, sweep, refit, evaluate, predict, diagnose, export, listing, split, reproduce, study, report):
    module.register(app)


def _unfold(text: str) -> str:
    r"""Join the lines of each paragraph of a docstring, so that help is broken at the terminal's width, not at ours.

    What is indented is an example, and gets a prompt, because Typer strips its indentation.

    Example:
        >>> _unfold("Train.\n\nA long\nsentence.\n\n    pfdl train")
        'Train.\n\nA long sentence.\n\n$ pfdl train'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"$ {one.strip()}" if one.startswith(" ") else one.replace("\n", " ") for one in paragraphs)


for typed in (app, *(group.typer_instance for group in app.registered_groups)):
    for command in typed.registered_commands if typed is not None else ():
        command.help = _unfold(command.callback.__doc__ or "") if command.callback else None


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
