"""The command that splits images: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl._internal.text import printable
from pfdl.cli.common import (
    ContextColumn,
    Data,
    GroupColumn,
    ImageRoot,
    LabelColumn,
    Layout,
    OnBadImage,
    PathColumn,
    Ratio,
    SplitColumn,
    Superclass,
    answering_mistakes,
)
from pfdl.cli.images import name_columns, open_source, print_understood

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest


def split(
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The manifest, a .csv file; a .json file is written beside it.")
    ] = Path("manifest.csv"),
    ratio: Ratio = "natural",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split: sides and dominant contexts.")] = 0,
    validation: Annotated[float, typer.Option(help="Share of the training set that is held out.")] = 0.1,
    path_column: PathColumn = None,
    label_column: LabelColumn = None,
    context_column: ContextColumn = None,
    split_column: SplitColumn = None,
    group_column: GroupColumn = None,
    image_root: ImageRoot = None,
    superclass: Superclass = None,
    layout: Layout = None,
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="CSV:COLUMN", help="Keep images with the same entry, such as one background, on one side."
        ),
    ] = None,
    on_bad_image: OnBadImage = "error",
) -> None:
    """Split images into a manifest that others can repeat.

    Data with a test set of its own keeps it; other data is split 60:40, and all images are used. With a ratio, data
    with contexts is split by the proportional-bias protocol of NICO, which leaves images out. Every file is decoded
    once and hashed; no picture is in training and in a test, whatever its name.

        pfdl split photos/ -o manifest.csv --ratio 5:1 --seed 0
    """
    with answering_mistakes():
        from pfdl.data import make_split
        from pfdl.data.manifest import read_groups

        groups = None if group_by is None else read_groups(group_by)
        columns = name_columns(
            path_column, label_column, context_column, split_column, group_column, image_root=image_root, layout=layout
        )
        source = open_source(data, superclass, on_bad_image, None, columns=columns)
        manifest = make_split(source, ratio=ratio, seed=seed, validation_fraction=validation, groups=groups)
        written = manifest.save(output)
        print_understood(source, manifest)
        _print(manifest)
        for path in written:
            typer.echo(path)


def _print(manifest: Manifest) -> None:
    kind = "most frequent" if manifest.parameters["ratio"] is None else "dominant"
    for name, context in manifest.dominant.items():
        if context:
            typer.echo(f"{printable(name)}: {kind} context {printable(context)}")
