"""What the commands share: options, and the sentence that answers a user's mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pfdl._internal.text import printable_lines

BUILT_IN = "contexts"
DATA_HELP = "A folder class/context/image or class/image; or the word 'contexts' for the built-in drawn data set."
Data = Annotated[str, typer.Argument(metavar="DIR|contexts", help=DATA_HELP)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that pfdl train made.")]
Superclass = Annotated[str | None, typer.Option(help="Top folder to use, where classes lie one level deeper (NICO).")]
OnBadImage = Annotated[str, typer.Option(help="error: name unusable files and stop; skip: name them and go on.")]
Device = Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")]


@contextmanager
def answering_mistakes() -> Iterator[None]:
    """Answer a user's mistake, a missing package or a full disk with a sentence; our own mistakes keep a traceback."""
    try:
        yield
    except (ImportError, OSError, ValueError) as error:
        sentence = str(error)
        if isinstance(error, ModuleNotFoundError) and error.name:  # without a name the sentence is our own
            sentence += "; install it, or pfdl[images], which brings all that images need."
        elif isinstance(error, OSError) and error.strerror:  # likewise
            sentence = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
        typer.echo(f"Error: {printable_lines(sentence)}", err=True)
        raise typer.Exit(2) from None
