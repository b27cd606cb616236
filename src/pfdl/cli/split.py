"""The command that splits images: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl._internal.text import printable, printable_lines

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest


def split(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DIR|contexts",
            help="A folder class/context/image or class/image; or the word 'contexts' for the built-in drawn data set.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The manifest, a .csv file; a .json file is written beside it.")
    ] = Path("manifest.csv"),
    ratio: Annotated[str, typer.Option(help="Images of the dominant context to those of each other, in training.")] = (
        "5:1"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Draws the sides and the dominant contexts.")] = 0,
    validation: Annotated[float, typer.Option(help="Share of the training set that is held out.")] = 0.1,
    superclass: Annotated[
        str | None, typer.Option(help="Top folder to use, where classes lie one level deeper (NICO).")
    ] = None,
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="CSV:COLUMN", help="Keep images with the same entry, such as one background, on one side."
        ),
    ] = None,
    on_bad_image: Annotated[str, typer.Option(help="error: name unusable files and stop; skip: leave them out.")] = (
        "error"
    ),
) -> None:
    """Split images by the proportional-bias protocol into a manifest that others can repeat.

    Every file is decoded once and hashed; no picture is in training and in a test, whatever its name.
    """
    from rich.console import Console

    from pfdl._internal.progress import counting
    from pfdl.data import ContextFolder, ProceduralContexts, make_split
    from pfdl.data.manifest import read_groups
    from pfdl.data.sources import ContextSource, describe_bad_images

    try:
        groups = None if group_by is None else read_groups(group_by)
        with counting("checking images", Console(stderr=True)) as show:
            source: ContextSource = (
                ProceduralContexts()
                if data == "contexts"
                else ContextFolder(data, superclass=superclass, on_bad_image=on_bad_image, on_progress=show)
            )
            manifest = make_split(source, ratio=ratio, seed=seed, validation_fraction=validation, groups=groups)
        written = manifest.save(output)
    except (OSError, ValueError) as error:
        typer.echo(f"Error: {printable_lines(error)}", err=True)
        raise typer.Exit(2) from None
    if isinstance(source, ContextFolder) and source.bad_images:
        left_out = describe_bad_images(source.root, source.bad_images)
        typer.echo(f"{printable_lines(left_out)}\nThey were left out.", err=True)
    _print(manifest)
    for path in written:
        typer.echo(path)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(split)


def _print(manifest: Manifest) -> None:
    for name, context in manifest.dominant.items():
        if context:
            typer.echo(f"{printable(name)}: dominant context {printable(context)}")
    typer.echo("images: " + ", ".join(f"{name} {count}" for name, count in manifest.parameters["images"].items()))
    for note in manifest.notes:
        typer.echo(f"Note: {printable(note)}", err=True)
