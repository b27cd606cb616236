"""What the commands share: options, opening images, testing a model, and the sentence that answers
a mistake.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl._internal.text import printable, printable_lines

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest
    from pfdl.data.sources import ContextSource
    from pfdl.vision.checkpoint import TrainedModel
    from pfdl.vision.config import DataOptions

SHAPES = "shapes"
DATA_HELP = (
    "A folder class/image, class/context/image or context/class/image, with or without train, val"
    " and test above it; a table with a line per image (.csv, .tsv, .parquet, CelebA's .txt); or"
    " the word 'shapes' for the built-in data."
)
DATA = "DIR|TABLE|shapes"


def say(what: str) -> None:
    """Say on standard error what takes a while."""
    typer.echo(printable_lines(f"{what} …"), err=True)


def say_loading() -> None:
    """Say on a terminal that what comes first takes some seconds."""
    if sys.stderr.isatty():
        say("Loading PyTorch")


def check_there(kind: str, place: Path, why: str) -> None:
    """Raise unless there is what a user names, before anything is loaded to read it.

    Args:
        kind: What it should be.
        place: Where it should be.
        why: What to do otherwise.

    Raises:
        FileNotFoundError: If there is none.
    """
    if not place.exists():
        raise FileNotFoundError(f"there is no {kind} {place}; {why}.")


def say_sentence(sentence: str, colour: str | None = None, *, err: bool = False) -> None:
    """Print a sentence; on a terminal, broken between words at its width."""
    text = printable(sentence)
    if (sys.stderr if err else sys.stdout).isatty():
        text = textwrap.fill(text, shutil.get_terminal_size().columns, break_on_hyphens=False)
    typer.secho(text, fg=colour, err=err)


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Answer a mistake, a missing package, a full disk or Ctrl-C with a sentence; our own mistakes
    keep a traceback.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:  # that of a training says what is saved
        typer.echo(
            str(stopped) or "Stopped. What is finished is kept; the same command resumes.", err=True
        )
        raise typer.Exit(130) from None
    except (ImportError, OSError, ValueError) as error:
        sentence = str(error)
        # Without a name or a reason of the system the sentence is our own
        if isinstance(error, ModuleNotFoundError) and error.name:
            sentence += "; install it, or pfdl[images], which brings all that images need."
        elif isinstance(error, OSError) and error.strerror:
            place = f"{error.filename}: " if error.filename else ""
            sentence = f"{place}{error.strerror}."
        typer.echo(f"Error: {printable_lines(sentence)}", err=True)
        raise typer.Exit(2) from None


@exit_on_user_error()
def check_run(run: Path | None) -> Path | None:
    """Check that a run is there, while the command line is read: nothing is loaded yet."""
    if run is not None:
        check_there("run", run, "name the folder that pfdl train made")
    return run


@exit_on_user_error()
def check_data(context: typer.Context, data: str | None) -> str | None:
    """Check that images are there, and not a run in their place, before PyTorch is loaded."""
    if data is None:
        return None
    place = Path(data)
    run = context.params.get("run")
    if run is not None:
        _check_order(Path(run), place)
    if data != SHAPES:
        kind = "table" if place.suffix else "folder"
        check_there(kind, place, "name where the images are")
    say_loading()
    return data


def _check_order(run: Path, data: Path) -> None:
    from pfdl.runs import CONFIG

    if not (run / CONFIG).is_file() and (data / CONFIG).is_file():
        raise ValueError(f"{data} is a run and {run} is not: name the run first, then the images.")


Data = Annotated[str, typer.Argument(metavar=DATA, help=DATA_HELP, callback=check_data)]
Run = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="The folder that pfdl train made.", callback=check_run),
]
Device = Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")]


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar, in the first process alone."""
    from rich.console import Console

    from pfdl._internal.processes import rank
    from pfdl._internal.progress import progress_bar

    with progress_bar(description, None if rank() else Console(stderr=True)) as show:
        yield show


def open_source(
    data: str, options: DataOptions, split: Manifest | None, *, features: str | None = None
) -> ContextSource:
    """Open the images that a command was given, and name those that cannot be used.

    With a split of these images that exists already, each image is checked when it is loaded.

    Args:
        data: What the user calls them.
        options: How to read them.
        split: A split of them, or of data with the same classes.
        features: What a run was trained on; the features of the options come before it.
    """
    from pfdl._internal.processes import rank
    from pfdl.data import open_images
    from pfdl.data.sources import ImageFiles, describe_bad_images

    reading = {**asdict(options), "columns": options.named_columns()}
    what = reading.pop("features") or features
    source = open_images(data, **reading, like=split)
    if split is None and isinstance(source, ImageFiles):
        with progress("checking images") as show:
            bad = source.check(show).bad
        if bad and rank() == 0:
            typer.echo(describe_bad_images(source.root, bad, "They are left out."), err=True)
    return describe(source, what) if what else source


def describe(source: ContextSource, what: str) -> ContextSource:
    """Give images features in place of pixels, from a file or by a network, with progress."""
    from pfdl._internal.processes import rank
    from pfdl._internal.validation import resolve_device
    from pfdl.vision.embedding import describe_source, is_feature_file

    if rank() == 0:
        verb = "Reading features from" if is_feature_file(what) else "Describing images by"
        say(f"{verb} {what}")
    with progress("describing images") as show:
        return describe_source(source, what, device=resolve_device("auto"), on_progress=show)


def open_run(
    run: Path, data: str, options: DataOptions
) -> tuple[TrainedModel, Manifest, ContextSource]:
    """Open a trained model, its own split, and images for it, of which bad ones are left out.

    Contexts that the data names and the split does not know are added to it.
    """
    from pfdl.data.splits import name_contexts
    from pfdl.vision import load_model
    from pfdl.vision.checkpoint import read_split
    from pfdl.vision.embedding import check_features

    trained = load_model(run)
    own = read_split(trained.folder)
    config = trained.config
    source = open_source(
        data, replace(options, on_bad_image="skip"), own, features=config.network or None
    )
    check_features(config, source)
    own, note = name_contexts(own, source)
    if note:
        typer.echo(f"Note: {note}", err=True)
    return trained, own, source


def find_test(own: Manifest, source: ContextSource) -> Manifest:
    """Choose the images to test on; of other data than that of the run, say what was understood."""
    from pfdl.vision.evaluation import find_test_set

    split = find_test_set(own, source)
    if split != own:
        print_understood(split)
    return split


def print_understood(split: Manifest) -> None:
    """Say in two lines, on standard error, what was understood of the data, and what to know about
    its split.
    """
    for line in split.describe().split("\n"):
        say_sentence(line, err=True)
    for note in split.notes:
        typer.echo(f"Note: {note}", err=True)


def evaluate_and_print(
    trained: TrainedModel,
    source: ContextSource,
    split: Manifest,
    device: str,
    *,
    name: str = "test",
    trained_on: Manifest | None = None,
) -> Path:
    """Test a model, write the figures into its run, and print them as tables and sentences."""
    import pandas as pd

    from pfdl.vision.evaluation import describe_evaluation, evaluate, measure_gap, save_evaluation

    result = evaluate(trained, source, split, name=name, trained_on=trained_on, device=device)
    path = save_evaluation(trained.folder, result)
    gap = measure_gap(trained.folder, result.overall, result.images)
    first, *others = describe_evaluation(result)
    for sentence in [first, gap.sentence()] if gap else [first]:
        say_sentence(sentence)
    by = {
        "dominant ratio of the test set": result.by_ratio,
        "class": result.by_label,
        "context": result.by_context,
    }
    for what, shares in by.items():
        if shares:
            table = 100 * pd.DataFrame([shares]).rename(columns=printable)
            typer.echo(f"Accuracy (%) by {what}")
            typer.echo(table.to_string(index=False, float_format="{:.1f}".format))
    for sentence in others:
        say_sentence(sentence)
    return path
