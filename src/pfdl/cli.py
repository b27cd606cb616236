"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="pfdl",
    help="Partial Feature Decorrelation Learning: train models that hold up where the data shifts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reproduce = typer.Typer(help="Rerun a table of the paper, beside the paper's own figures.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


def main() -> None:
    """Run the command line; a user's mistake is answered with a sentence, not a traceback."""
    app()


if __name__ == "__main__":
    main()
