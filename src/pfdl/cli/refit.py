"""The command that refits the last layer of a run: parses, calls, prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import Data, Device, Run
from pfdl.cli.images import evaluate_and_print, open_source
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions


@takes_settings(without=("on_bad_image",))
def refit(
    run: Run,
    data: Data,
    options: DataOptions,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The new run; by default RUN-refit.")] = None,
    contexts: Annotated[
        str, typer.Option(help="inferred: found in the images; known: those of the data (class/context/image).")
    ] = "inferred",
    on: Annotated[
        str, typer.Option(help="validation: images that the network was not trained on; train: the training images.")
    ] = "validation",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws, and of inferring contexts.")] = 0,
    device: Device = "auto",
) -> None:
    """Refit the last layer of a trained network so that all groups count equally (DFR), as a run of its own.

    A network trained without regard to contexts often has learnt what it needs and uses it badly in its last layer.
    This takes seconds where training takes hours. DATA is what the run was trained on. No test image is used to refit;
    at the end the new run is tested like the old one.

        pfdl refit runs/erm photos/

        pfdl diagnose runs/erm-refit photos/ --compare runs/erm
    """
    from pfdl._internal.devices import resolve_device
    from pfdl._internal.runs import MANIFEST
    from pfdl._internal.text import printable
    from pfdl.data import read_manifest
    from pfdl.vision import load_model
    from pfdl.vision import refit as refit_run

    device = resolve_device(device)
    trained = load_model(run)
    manifest = read_manifest(trained.folder / MANIFEST)
    source = open_source(data, replace(options, on_bad_image="skip"), manifest)
    folder = output or trained.folder.with_name(f"{trained.folder.name}-refit")
    made = refit_run(trained, source, manifest, folder, on=on, contexts=contexts, device=device, seed=seed)
    typer.echo(printable(made.sentence), err=True)
    typer.echo(
        f"Refitted on {made.readout.samples_per_group} {on} images of each group, 20 draws; penalty "
        f"C = {made.readout.strength:g}, chosen by the worst group of held-out halves "
        f"({100 * made.readout.held_out_worst:.1f} %).",
        err=True,
    )
    if any(name.startswith("test") for name in manifest.set_names):
        evaluate_and_print(load_model(folder), source, manifest, device)
    typer.echo(folder)
