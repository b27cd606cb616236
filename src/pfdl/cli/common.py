"""What the commands share: options, and the sentence that answers a user's mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pfdl._internal.text import printable_lines

DATA_HELP = (
    "A folder class/image, class/context/image or context/class/image, with or without train, val and test above it; "
    "a table with a line per image (.csv, .tsv, .parquet, CelebA's .txt); or the word 'shapes' for the built-in data."
)
DATA = "DIR|TABLE|shapes"
Data = Annotated[str, typer.Argument(metavar=DATA, help=DATA_HELP)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that pfdl train made.")]
Device = Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")]


def say(what: str) -> None:
    """Say on standard error what takes a while."""
    typer.echo(printable_lines(f"{what} …"), err=True)


@contextmanager
def answering_stops() -> Iterator[None]:
    """Answer Ctrl-C or SIGTERM during a training with what was saved; of several processes only the first prints."""
    from pfdl._internal.processes import OtherProcessError, rank
    from pfdl.vision import TrainingStoppedError

    try:
        yield
    except TrainingStoppedError as stopped:
        if rank():
            raise typer.Exit from None
        typer.echo(stopped, err=True)
        raise typer.Exit(130) from None
    except OtherProcessError:  # which has said why
        raise typer.Exit(1) from None


@contextmanager
def answering_mistakes() -> Iterator[None]:
    """Answer a user's mistake, a missing package or a full disk with a sentence; our own mistakes keep a traceback."""
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        sentence = str(error)
        if isinstance(error, ModuleNotFoundError) and error.name:  # without a name the sentence is our own
            sentence += "; install it, or pfdl[images], which brings all that images need."
        elif isinstance(error, OSError) and error.strerror:  # without it the sentence is our own, too
            sentence = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
        typer.echo(f"Error: {printable_lines(sentence)}", err=True)
        raise typer.Exit(2) from None
