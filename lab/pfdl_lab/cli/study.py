"""The commands of the study: study, and study-features, which embeds images by a pretrained network first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl.cli.common import Data, Device, answering_mistakes, this_command
from pfdl.cli.workers import Backend, GpusPerTask, Jobs, Parallel
from pfdl_lab.cli.common import print_tables
from pfdl_lab.cli.options import (
    ContextColumn,
    FirstSeed,
    GroupColumn,
    LabelColumn,
    Mnist,
    Output,
    PathColumn,
    SplitColumn,
    name_columns,
)

if TYPE_CHECKING:
    from pfdl_lab.study.data import StudyData


def study(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA…",
            help="shapes, shapes-0.5 (backgrounds of that strength), colored-mnist, spuco-mnist, "
            "spuco-mnist-small-0.995 (size and strength of its colour), or images: folders class/image or "
            "class/context/image, with or without train and test above it, or tables with a line per image.",
        ),
    ],
    features: Annotated[
        list[Path] | None, typer.Option(help="For each folder, a file by 'pfdl study-features', in the same order.")
    ] = None,
    group_by: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER=CSV:COLUMN", help="For that folder, keep images with the same entry on one side."),
    ] = None,
    mnist: Mnist = None,
    rows: Annotated[
        str,
        typer.Option(help="methods, factors (variants of PFDL), or with commas: keys of these, names of objectives."),
    ] = "methods",
    seeds: Annotated[int, typer.Option(min=2, help="Paired repetitions.")] = 10,
    first_seed: FirstSeed = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training samples.")] = 30,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Learning rate of SGD.")] = 0.01,
    backbone: Annotated[
        str,
        typer.Option(help="What is trained on pixels: see 'pfdl list', or efficientnet-lite0, which is fine-tuned."),
    ] = "resnet18",
    select: Annotated[
        str,
        typer.Option(
            help="Test the last epoch; or also the one that is best on a tenth of the training samples, held out, by "
            "'accuracy' or by 'worst-group' (of inferred contexts; of true ones for oracles)."
        ),
    ] = "last",
    output: Output = Path("runs/study"),
    device: Device = "auto",
    jobs: Jobs = 1,
    backend: Backend = "joblib",
    gpus_per_task: GpusPerTask = None,
    path_column: PathColumn = None,
    label_column: LabelColumn = None,
    context_column: ContextColumn = None,
    split_column: SplitColumn = None,
    group_column: GroupColumn = None,
) -> None:
    """Compare methods by very many small trainings on paired seeds.

    Images in contexts are trained on at 5:1 and tested where the contexts shift; images without contexts, or with a
    test set of their own, are tested on their whole test set.

    An interrupted study resumes when started again with the same output folder.

        pfdl study shapes colored-mnist --rows erm,pfdl,balance

        pfdl study pacs --features pacs.safetensors
    """
    with answering_mistakes():
        from pfdl_lab.study import run as experiment

        config = experiment.StudyConfig(
            rows=_row_keys(rows),
            seeds=seeds,
            first_seed=first_seed,
            epochs=epochs,
            learning_rate=learning_rate,
            select=select,
        )
        columns = name_columns(path_column, label_column, context_column, split_column, group_column)
        datasets = make_study_data(data, features or [], group_by or [], mnist, backbone, columns)
        with Parallel(jobs, backend, gpus_per_task).execution(device) as execution:
            experiment.run(config, datasets, output, execution)
        print_tables(output)


def study_table(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS.CSV…", help="Results of one or more studies.")],
    rows: Annotated[
        str | None, typer.Option(help="methods, factors, or keys with commas; all of them where this is left out.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Only data sets with this in their name; may be given several times.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Key of the row to compare with, such as pfdl, instead of plain training.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A Markdown page whose tables to replace, instead of printing."),
    ] = None,
) -> None:
    """Print studies as Markdown: overviews of all data sets, then a table for each.

    What several machines have computed of a study becomes one.

        pfdl study-table runs/scratch/results.csv runs/fine-tuned/results.csv --rows methods

        pfdl study-table runs/study/results.csv --against stablenet
    """
    with answering_mistakes():
        from pfdl_lab.report.markdown import render
        from pfdl_lab.reporting import write_below_mark
        from pfdl_lab.study.rows import find_row
        from pfdl_lab.study.section import describe, read_results

        found = read_results(results)
        chosen = tuple(found["row"].unique()) if rows is None else _row_keys(rows)
        known = {row: find_row(row, measured=True) for row in (*chosen, *([against] if against else []))}
        rivals = [row.baseline for row in known.values()] if against is None else [against]
        found = found[[any(part in dataset for part in data or [""]) for dataset in found["dataset"]]]
        if not found["row"].isin(chosen).any():
            raise ValueError("there are no such results.")
        section = describe(found[found["row"].isin([*chosen, *rivals])], against=against, plots=False)
        if output is None:
            typer.echo(render([section]).text)
        else:
            write_below_mark([section], output, this_command())
            typer.echo(output)


def study_features(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The safetensors file to write.")] = Path(
        "features.safetensors"
    ),
    image_size: Annotated[int, typer.Option(min=1, help="Height and width the images are read at.")] = 96,
    device: Device = "auto",
) -> None:
    """Embed every image by EfficientNet-lite0, whose weights come with the extra 'pretrained'."""
    with answering_mistakes():
        from pfdl._internal.devices import resolve_device
        from pfdl.data import open_images
        from pfdl_lab.study.pretrained import write_features

        source = open_images(data, on_bad_image="skip")
        typer.echo(write_features(source, output, image_size=image_size, device=resolve_device(device)))


def _row_keys(rows: str) -> tuple[str, ...]:
    from pfdl_lab.study.rows import FACTORS, METHODS

    named = {"methods": tuple(METHODS), "factors": ("erm", "pfdl", *FACTORS)}
    return named.get(rows) or tuple(rows.split(","))


def make_study_data(
    data: list[str],
    features: list[Path],
    group_by: list[str],
    mnist: Path | None,
    network: str,
    columns: Mapping[str, str | None] | None = None,
) -> list[StudyData]:
    """Return the data sets that the options of ``pfdl study`` name."""
    from pfdl_lab.study.data import StudyData

    folders = [name for name in data if not StudyData(name).is_generated]
    if features and len(features) != len(folders):
        raise ValueError(f"there are {len(folders)} folders and {len(features)} --features; give one for each folder.")
    groups = _grouped(folders, group_by)
    embedded = dict(zip(folders, map(str, features), strict=False))
    digits = None if mnist is None else str(mnist)
    named = tuple((column, name) for column, name in (columns or {}).items() if name is not None)
    return [
        StudyData(name, embedded.get(name), groups.get(name), digits, network, named if name in folders else ())
        for name in data
    ]


def _grouped(folders: Sequence[str], group_by: Sequence[str]) -> dict[str, str]:
    """Return CSV:COLUMN by folder, each of which is meant by its path or by its last part."""
    groups: dict[str, str] = {}
    for entry in group_by:
        wanted, _, columns = entry.partition("=")
        meant = [folder for folder in folders if wanted in (folder, Path(folder).name)]
        if len(meant) != 1 or not columns:
            raise ValueError(
                f"--group-by {entry} names {'several folders' if len(meant) > 1 else 'no folder'} of the study; give "
                "FOLDER=CSV:COLUMN with one of them."
            )
        groups[meant[0]] = columns
    return groups
