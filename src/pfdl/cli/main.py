"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from pfdl.cli.diagnose import diagnose
from pfdl.cli.evaluate import evaluate
from pfdl.cli.export import export
from pfdl.cli.listing import list_names
from pfdl.cli.predict import predict
from pfdl.cli.refit import refit
from pfdl.cli.report import demo, report
from pfdl.cli.reproduce import colored_mnist, contexts, mmads, table_ii
from pfdl.cli.split import split
from pfdl.cli.study import study, study_features, study_table
from pfdl.cli.sweep import sweep
from pfdl.cli.train import train

app = typer.Typer(
    name="pfdl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reproduce = typer.Typer(help="Rerun a table of the paper, beside the paper's own figures.", no_args_is_help=True)
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
    "study": study,
    "study-table": study_table,
    "study-features": study_features,
    "demo": demo,
    "report": report,
}
TABLES: dict[str, Callable[..., None]] = {
    "mmads": mmads,
    "colored-mnist": colored_mnist,
    "contexts": contexts,
    "table-ii": table_ii,
}


def _unfold(text: str) -> str:
    r"""Join the lines of each paragraph of a docstring, so that help is broken at the terminal's width, not at ours.

    What is indented is an example, and gets a prompt, because Typer strips its indentation.

    Example:
        >>> _unfold("Train.\n\nA long\nsentence.\n\n    pfdl train")
        'Train.\n\nA long sentence.\n\n$ pfdl train'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"$ {one.strip()}" if one.startswith(" ") else one.replace("\n", " ") for one in paragraphs)


for group, commands in ((app, COMMANDS), (reproduce, TABLES)):
    for name, command in commands.items():
        group.command(name, help=_unfold(command.__doc__ or ""))(command)
app.add_typer(reproduce, name="reproduce")


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
