"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

from typing import Annotated

import typer

from pfdl.cli import diagnose, evaluate, export, listing, predict, refit, report, reproduce, split, study, sweep, train

app = typer.Typer(
    name="pfdl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (train, sweep, refit, evaluate, predict, diagnose, export, listing, split, reproduce, study, report):
    group.register(app)


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
