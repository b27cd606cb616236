"""The command that asks whether a model relies on context."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl._internal.files import write_atomically
from pfdl._internal.settings import write_options
from pfdl._internal.text import printable, printable_lines
from pfdl.cli.common import (
    DATA,
    DATA_HELP,
    Device,
    check_data,
    check_there,
    find_test,
    open_run,
    say,
    say_loading,
    say_sentence,
)
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions

if TYPE_CHECKING:
    from pfdl.data.sources import ContextSource
    from pfdl.vision.diagnosis import ImageDiagnosis

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet")
COLOURS = {
    "yes": typer.colors.RED,
    "no": typer.colors.GREEN,
    "cannot tell": typer.colors.BRIGHT_BLACK,
}


@takes_settings(without=("on_bad_image",))
def diagnose(
    options: DataOptions,
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN|TABLE",
            help=(
                "The folder that pfdl train made; or a table of numbers to screen. With"
                " --predictions the folder of images, if they are at hand."
            ),
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Argument(metavar=DATA, help=DATA_HELP, callback=check_data)
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="Another run, or table of predictions, to compare; may be given again."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help=(
                "A table of the answers of any model, wherever it was trained: path, label,"
                " prediction, and if known context and split (train, val or test)."
            )
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="For a table: the column to be predicted.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path(
        "diagnosis.html"
    ),
    device: Device = "auto",
) -> None:
    """Say whether a model relies on context: yes, no or cannot tell, and a page that shows why.

    A trained model is judged on images that it was not trained on: does it recognise a class less
    often outside the context that goes with the class in training? Where the images have no
    contexts, contexts are inferred. The page shows images of each context, of the worst groups and
    of what is taken for what, validation beside test accuracy, and what to expect if the contexts
    shift. A table is screened for leaks: which columns behave like effects of the target?

        pfdl diagnose runs/erm photos/ --compare runs/groupdro

        pfdl diagnose --predictions predictions.csv photos/

        pfdl diagnose table.csv --target y
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"the page is HTML: give --output a name that ends in .html, not {output}."
        )
    others = compare or []
    words = write_options(options)
    if predictions is not None:
        _check_answers(data, target)
        for table in [predictions, *others]:
            check_there("table of predictions", table, "it has a line for each answer of a model")
        diagnoses = _diagnose_answers([predictions, *others], run, options)
        _show(diagnoses, str(run or "IMAGES"), words, output)
    elif run is None:
        raise ValueError("name a run and its images, a table, or --predictions.")
    elif run.suffix.lower() in TABLE_SUFFIXES:
        _check_table(run, data, others)
        _diagnose_table(run, target, output)
    else:
        images = _check_runs(run, data, others, target)
        for place in [run, *others]:
            check_there("run", place, "name the folder that pfdl train made")
        _show(_diagnose_runs([run, *others], images, options, device), images, words, output)
    typer.echo(output)


def _check_answers(data: str | None, target: str | None) -> None:
    if target is not None or data is not None:
        raise ValueError("--predictions takes a folder of images, and neither DATA nor --target.")


def _check_table(table: Path, data: str | None, others: Sequence[Path]) -> None:
    if data is not None or others:
        raise ValueError(f"{table} is a table: it takes --target and neither images nor --compare.")


def _check_runs(run: Path, data: str | None, others: Sequence[Path], target: str | None) -> str:
    """Return where the images are; raise unless runs are asked for as they must be."""
    if target is not None:
        suffixes = ", ".join(TABLE_SUFFIXES)
        raise ValueError(f"--target is for a table, and {run} is none: give one of {suffixes}.")
    if data is None:
        raise ValueError(
            f"{run} is taken for a run; say where its images are: pfdl diagnose {run} DIR (or"
            " shapes)."
        )
    if run.resolve() in [other.resolve() for other in others]:
        raise ValueError(f"{run} would be compared with itself; give --compare another run.")
    return data


def _diagnose_runs(
    runs: list[Path], data: str, options: DataOptions, device: str
) -> list[ImageDiagnosis]:
    from pfdl._internal.validation import resolve_device
    from pfdl.vision.diagnosis import diagnose_images

    place = resolve_device(device)
    diagnoses = []
    for run in runs:
        trained, own, source = open_run(run, data, options)
        split = find_test(own, source)
        say(f"Diagnosing {run} on {place}")
        diagnoses.append(
            diagnose_images(trained, source, split, trained_on=own, device=place, say=say)
        )
    return diagnoses


def _diagnose_answers(
    tables: list[Path], root: Path | None, options: DataOptions
) -> list[ImageDiagnosis]:
    """Diagnose models by tables of their answers."""
    say_loading()
    from pfdl.cli.common import describe
    from pfdl.vision.answers import read_answers
    from pfdl.vision.diagnosis import diagnose_answers

    diagnoses = []
    for table in tables:
        say(f"Diagnosing {table}")
        answers = read_answers(table, root)
        source: ContextSource | None = answers.source
        if options.features is not None:
            source = describe(answers.named, options.features)
        diagnoses.append(diagnose_answers(table, answers, source, say=say))
    return diagnoses


def _show(diagnoses: list[ImageDiagnosis], data: str, words: list[str], output: Path) -> None:
    """Print the verdicts with what to try next, and write the page."""
    from pfdl.report.diagnosis_page import diagnosis_page
    from pfdl.runs import name_folders
    from pfdl.vision.advice import advise
    from pfdl.vision.diagnosis import compare_all

    named = dict(
        zip(name_folders([diagnosis.folder for diagnosis in diagnoses]), diagnoses, strict=True)
    )
    for name, diagnosis in named.items():
        typer.echo(f"Does {printable(name)} rely on the context? ", nl=False)
        typer.secho(diagnosis.answer.upper(), fg=COLOURS[diagnosis.answer], bold=True)
        for line in diagnosis.verdict():
            say_sentence(line)
        typer.echo("What to try next:")
        for sentence, command in advise(diagnosis, data, words):
            typer.echo(f"- {sentence}\n  {printable(command)}")
    comparisons, warning = compare_all(named)
    for sentence in filter(None, [*comparisons, warning]):
        say_sentence(sentence)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, diagnosis_page(named, data, words))


def _diagnose_table(path: Path, target: str | None, output: Path) -> None:
    if target is None:
        raise ValueError(f"say which column of {path} is to be predicted: --target NAME.")
    check_there("table", path, "name a file with columns of numbers")
    say(f"Screening {path}")
    from pfdl.report.table_page import table_page
    from pfdl.tabular import LeakScreen, LeakWarning
    from pfdl.tabular.explaining import advice
    from pfdl.tabular.reading import read_table

    X, y, notes = read_table(path, target, complete=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        screen = LeakScreen().fit(X, y)
    # What a LeakWarning says, the verdict says, too
    notes += [str(one.message) for one in caught if one.category is not LeakWarning]
    for note in notes:
        typer.echo(f"Note: {printable(note)}", err=True)
    suspects = screen.suspects_
    clean = suspects.empty and screen.get_support().all()
    colour = typer.colors.GREEN if clean else typer.colors.YELLOW
    for sentence in screen.verdict_.split("\n"):
        say_sentence(sentence, colour)
    for column, suspicion in suspects.iterrows():
        say_sentence(f"{column} ({suspicion['grade']}): {suspicion['reason']}")
    code = advice(screen, path, target)
    typer.echo(printable_lines(code))
    write_atomically(output, table_page(screen, path.name, target, notes, code))
