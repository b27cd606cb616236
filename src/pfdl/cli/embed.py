"""The command that describes images by a pretrained network, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import Data, Device, open_source, progress, say
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions


@takes_settings(without=("features",))
def embed(
    data: Data,
    options: DataOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file of features to write, .npz.")
    ] = Path("features.npz"),
    network: Annotated[
        str,
        typer.Option(
            help=(
                "The network: lite0, which comes with pfdl[pretrained]; torchvision/NAME or"
                " timm/NAME, whose weights are downloaded; or one of your own by --import."
            )
        ),
    ] = "lite0",
    weights: Annotated[
        Path | None, typer.Option(help="A local file of the network's weights.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Describe images by the features of a pretrained network, and write these to a file.

    What took minutes is done once: train, diagnose, refit, evaluate and predict take the file in
    place of the pixels (--features). Features are also kept in a cache, by the hashes of images
    and network, so that --features lite0 alone does not compute them twice.

        pfdl embed photos/ -o features.npz

        pfdl train photos/ --features features.npz -o runs/readout
    """
    from pfdl._internal.validation import resolve_device
    from pfdl.data.features import write_features
    from pfdl.vision.embedding import embed_images, load_extractor

    if output.suffix.lower() != ".npz":
        raise ValueError(f"features are written as .npz: give --output a name so, not {output}.")
    place = resolve_device(device)
    extractor = load_extractor(network, weights=weights)
    source = open_source(data, options, None)
    say(f"Describing {len(source.samples)} images by {network} on {place}")
    with progress("describing images") as show:
        table = embed_images(source, extractor, device=place, on_progress=show)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_features(output, table)
    typer.echo(f"{len(table.paths)} images, {table.num_features} features each.")
    typer.echo(output)
