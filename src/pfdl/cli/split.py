"""The command that splits images: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl._internal.text import printable
from pfdl.cli.common import Data
from pfdl.cli.images import open_source, print_understood
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions


@takes_settings()
def split(
    data: Data,
    options: DataOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The manifest, a .csv file; a .json file is written beside it.")
    ] = Path("manifest.csv"),
    ratio: Annotated[
        str,
        typer.Option(
            help="Such as 5:1: in training, images of the dominant context to images of each other, the rest left "
            "out; natural uses all images. For data with contexts and without sets of its own."
        ),
    ] = "natural",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split: sides and dominant contexts.")] = 0,
    validation: Annotated[float, typer.Option(help="Share of the training set that is held out.")] = 0.1,
) -> None:
    """Split images into a manifest that others can repeat.

    Data with a test set of its own keeps it; other data is split 60:40, and all images are used. With a ratio, data
    with contexts is split by the proportional-bias protocol of NICO, which leaves images out. Every file is decoded
    once and hashed; no picture is in training and in a test, whatever its name.

        pfdl split photos/ -o manifest.csv --ratio 5:1 --seed 0
    """
    from pfdl.data import make_split

    source = open_source(data, options, None)
    manifest = make_split(source, ratio=ratio, seed=seed, validation_fraction=validation)
    written = manifest.save(output)
    print_understood(manifest)
    kind = "most frequent" if manifest.parameters["ratio"] is None else "dominant"
    for name, context in manifest.dominant.items():
        if context:
            typer.echo(f"{printable(name)}: {kind} context {printable(context)}")
    for path in written:
        typer.echo(path)
