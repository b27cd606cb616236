"""The command study: any rows on any images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions
from pfdl_lab.cli.common import Mnist, Output, Rows, print_tables, seen_by_user
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.workers import Execution

if TYPE_CHECKING:
    from pfdl_lab.images.data import ImageData


@takes_settings(all_shown=True, defaults={"on_bad_image": "skip", "device": "auto"})
def study(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA…",
            help="shapes, shapes-0.5 (backgrounds of that strength), colored-mnist, spuco-mnist, "
            "spuco-mnist-small-0.995 (size and strength of its colour), or images: folders"
            " class/image or "
            "class/context/image, with or without train and test above it, or tables with a line"
            " per image.",
        ),
    ],
    options: DataOptions,
    config: ImagesConfig,
    execution: Execution,
    group_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER=CSV:COLUMN",
            help="For that folder, keep images with the same entry on one side.",
        ),
    ] = None,
    mnist: Mnist = None,
    rows: Rows = "methods",
    output: Output = Path("runs/study"),
) -> None:
    """Compare objectives by many trainings on paired seeds.

    Images in contexts are trained on at 5:1 and tested where the contexts shift; images without
    contexts, or with a test set of their own, are tested on their whole test set.

    An interrupted study resumes when started again with the same output folder.

        pfdl study shapes colored-mnist --rows erm,pfdl,balance

        pfdl study pacs --backbone efficientnet-lite0-features
    """
    from pfdl_lab.images.rows import row_keys
    from pfdl_lab.images.run import run

    datasets = make_datasets(data, group_by or [], mnist, options)
    config = replace(config, rows=row_keys(rows))
    print_tables(output, run(config, datasets, output, seen_by_user(execution)))


def make_datasets(
    data: Sequence[str], group_by: Sequence[str], mnist: Path | None, options: DataOptions
) -> list[ImageData]:
    """Return the data sets that the options name; a folder to group is meant by its path or by its
    last part.
    """
    from pfdl.data.tables import TABLES
    from pfdl_lab.images.data import ImageData

    folders = [name for name in data if not ImageData(name).is_generated]
    groups: dict[str, str] = {}
    for entry in group_by:
        wanted, _, column = entry.partition("=")
        meant = [folder for folder in folders if wanted in (folder, Path(folder).name)]
        if len(meant) != 1 or not column:
            raise ValueError(
                f"--group-by {entry} names {'several folders' if len(meant) > 1 else 'no folder'}"
                " of the study; give FOLDER=CSV:COLUMN with one of them."
            )
        groups[meant[0]] = column
    of_table = replace(options, layout=None)
    digits = None if mnist is None else str(mnist)
    return [
        ImageData(
            name,
            of_table if Path(name).suffix.lower() in TABLES else options,
            groups.get(name),
            digits,
        )
        for name in data
    ]
