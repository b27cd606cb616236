"""What the commands share: options, and the sentence that answers a user's mistake."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterator
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
TABLE = "If the images are listed in a table"
PathColumn = Annotated[
    str | None, typer.Option(help="Column of a table that has the path of the image.", rich_help_panel=TABLE)
]
LabelColumn = Annotated[str | None, typer.Option(help="Column of a table that has the class.", rich_help_panel=TABLE)]
ContextColumn = Annotated[
    str | None, typer.Option(help="Column of a table that has the context.", rich_help_panel=TABLE)
]
SplitColumn = Annotated[
    str | None,
    typer.Option(help="Column of a table that has the set: train, val, test or 0, 1, 2.", rich_help_panel=TABLE),
]
GroupColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of a table of what must stay on one side of a split, such as a patient.", rich_help_panel=TABLE
    ),
]
ImageRoot = Annotated[
    str | None,
    typer.Option(
        help="Folder that the paths of a table start in; by default the table's own, or one below it with the images.",
        rich_help_panel=TABLE,
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that pfdl train made.")]
Test = Annotated[str | None, typer.Option(help="Further images that are the test set; then all of DATA is trained on.")]
TrainedTest = Annotated[str | None, typer.Option("--test", help="The --test that the run was trained with, if any.")]
Ratio = Annotated[
    str,
    typer.Option(
        help="Such as 5:1: in training, images of the dominant context to images of each other, the rest left out; "
        "natural uses all images. For data with contexts and without sets of its own."
    ),
]
Superclass = Annotated[str | None, typer.Option(help="Top folder to use, where classes lie one level deeper (NICO).")]
Layout = Annotated[
    str | None,
    typer.Option(
        metavar="class/context|context/class", help="Which folders are the classes, where both readings are possible."
    ),
]
OnBadImage = Annotated[str, typer.Option(help="error: name unusable files and stop; skip: leave them out.")]
Device = Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")]

Output = Annotated[Path, typer.Option("--output", "-o", help="Run folder, with results.csv, table.md and figures.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed.")]
GroupBy = Annotated[
    str | None, typer.Option(metavar="CSV:COLUMN", help="Keep images with the same entry on one side of the split.")
]
Mnist = Annotated[
    Path | None,
    typer.Option(envvar="PFDL_MNIST", help="Folder of the four MNIST files. Without it: scikit-learn's digits."),
]


def this_command() -> str:
    """Return the command line for the record; an absolute path is cut to its name, for it may name a person."""
    return shlex.join(["pfdl", *(Path(part).name if Path(part).is_absolute() else part for part in sys.argv[1:])])


def _unfold(text: str) -> str:
    r"""Join the lines of each paragraph of a docstring, so that help is broken at the terminal's width, not at ours.

    What is indented is an example, and gets a prompt, because Typer strips its indentation.

    Example:
        >>> _unfold("Train.\n\nA long\nsentence.\n\n    pfdl train")
        'Train.\n\nA long sentence.\n\n$ pfdl train'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"$ {one.strip()}" if one.startswith(" ") else one.replace("\n", " ") for one in paragraphs)


def add_command(group: typer.Typer, name: str, command: Callable[..., None] | typer.Typer) -> None:
    """Add a command to a group; its docstring is the help, and a Typer application is a group of commands."""
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name)
    else:
        group.command(name, help=_unfold(command.__doc__ or ""))(command)


@contextmanager
def saying(what: str) -> Iterator[Callable[[str], None]]:
    """Say what takes a while: a spinner on a terminal, elsewhere one plain line, on standard error.

    Yields:
        What to call with the next thing that takes a while.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:

        def say(what: str) -> None:
            typer.echo(printable_lines(f"{what} …"), err=True)

        say(what)
        yield say
        return
    with console.status(f"{escape(what)} …") as status:
        yield lambda what: status.update(f"{escape(printable_lines(what))} …")


@contextmanager
def answering_stops() -> Iterator[None]:
    """Answer Ctrl-C or SIGTERM during a training with what was saved; of several processes only the first prints."""
    from pfdl._internal.processes import OtherProcessError, rank
    from pfdl.vision.stopping import TrainingStoppedError

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
