"""Options that several of the laboratory's commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Superclass = Annotated[str | None, typer.Option(help="Top folder to use, where classes lie one level deeper (NICO).")]
OnBadImage = Annotated[str, typer.Option(help="error: name unusable files and stop; skip: leave them out.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Run folder, with results.csv, table.md and figures.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed.")]
GroupBy = Annotated[
    str | None, typer.Option(metavar="CSV:COLUMN", help="Keep images with the same entry on one side of the split.")
]
Mnist = Annotated[
    Path | None,
    typer.Option(envvar="PFDL_MNIST", help="Folder of the four MNIST files. Without it: scikit-learn's digits."),
]


def name_columns(
    path: str | None, label: str | None, context: str | None, split: str | None, group: str | None = None
) -> dict[str, str | None]:
    """Return the columns of a table under the names by which :func:`pfdl.data.open_images` takes them."""
    names = ("path_column", "label_column", "context_column", "split_column", "group_column")
    return dict(zip(names, (path, label, context, split, group), strict=True))
