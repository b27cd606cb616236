"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

import typer

from pfdl.cli import diagnose as cli_diagnose
from pfdl.cli import images as cli_images
from pfdl.cli import report as cli_report
from pfdl.cli import reproduce as cli_reproduce
from pfdl.cli import split as cli_split
from pfdl.cli import study as cli_study

app = typer.Typer(
    name="pfdl",
    help="Partial Feature Decorrelation Learning: train models that hold up where the data shifts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (cli_reproduce, cli_images, cli_split, cli_report, cli_diagnose, cli_study):
    group.register(app)


def main() -> None:
    """Run the command line; a user's mistake is answered with a sentence, not a traceback."""
    app()


if __name__ == "__main__":
    main()
