"""The command that classifies images: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl._internal.text import printable
from pfdl.cli.common import Device, Run, saying
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions


@takes_settings(without=("test", "superclass"), example="on_bad_image=skip")
def predict(
    run: Run,
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGES…",
            help="Image files, folders of them, or tables with a line per image (.csv, .tsv, .parquet).",
        ),
    ],
    options: DataOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="The table to write.")] = Path("predictions.csv"),
    device: Device = "auto",
) -> None:
    """Classify images: a table with the prediction and the probability of each class, a line for each image.

    Nothing but the images is read: they need no labels, and folders may be arranged in any way.

        pfdl predict runs/erm photos/ -o predictions.csv
    """
    from collections import Counter

    from pfdl._internal.devices import resolve_device
    from pfdl._internal.files import write_atomically
    from pfdl.data.sources import describe_bad_images
    from pfdl.vision import load_model
    from pfdl.vision import predict as classify

    trained = load_model(run)
    place = resolve_device(device)
    column = options.named_columns().get("path_column")
    with saying(f"Classifying on {place}"):
        found = classify(trained, images, path_column=column, on_bad_image=options.on_bad_image, device=place)
    if found.bad_images:
        typer.echo(describe_bad_images(images[0], found.bad_images) + "\nThey are left out.", err=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, found.to_csv())
    for name, count in Counter(found.answers).most_common():
        typer.echo(f"{printable(name)}: {count}")
    typer.echo(output)
