"""What the commands share: options, and the sentence that answers a user's mistake."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from pfdl._internal.own_files import add_own_files
from pfdl._internal.text import printable_lines

DATA_HELP = (
    "A folder class/image, class/context/image or context/class/image, with or without train, val and test above it; "
    "a table with a line per image (.csv, .tsv, .parquet, CelebA's .txt); or the word 'shapes' for the built-in data."
)
DATA = "DIR|TABLE|shapes"
Data = Annotated[str, typer.Argument(metavar=DATA, help=DATA_HELP)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder that pfdl train made.")]
OwnFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        help="A file of your own that registers objectives or backbones; also the variable PFDL_IMPORT. Can be given "
        "several times.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")]


class _Command(typer.core.TyperCommand):
    """A command that answers an option which does not exist with how settings are typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Return what is left of the command line once options are read."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # Typer's own class for it has moved between versions
            option = getattr(error, "option_name", "")
            if option.startswith("--") and any(one.name == "settings" for one in self.params):
                hint = f"Settings without an option are given as --set {option[2:]}=VALUE; see 'pfdl list settings'."
                error.message = f"{error.message} {hint}"  # type: ignore[attr-defined]
            raise


def add_command(group: typer.Typer, name: str, command: Callable[..., None] | typer.Typer) -> None:
    """Add a command to a group; its docstring is the help, and a Typer application is a group of commands."""
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name)
    else:
        group.command(name, cls=_Command)(_prepared(command))


def _prepared(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option ``--import``, and answer its mistakes with sentences."""

    @functools.wraps(command)
    @answering_mistakes()
    def run(own_files: list[Path] | None = None, **given: Any) -> None:
        if own_files:
            add_own_files(own_files)
        command(**given)

    hints = {**get_type_hints(command, include_extras=True), "own_files": OwnFiles}
    known = inspect.signature(command).parameters.values()
    parameters = [one.replace(annotation=hints[one.name], kind=one.KEYWORD_ONLY) for one in known]
    parameters.append(inspect.Parameter("own_files", inspect.Parameter.KEYWORD_ONLY, annotation=OwnFiles, default=None))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


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
