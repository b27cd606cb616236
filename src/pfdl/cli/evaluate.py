"""The command that tests a trained model: parses, calls, prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import Data, Device, Run
from pfdl.cli.images import evaluate_and_print, open_source, print_understood
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions


@takes_settings(without=("on_bad_image",))
def evaluate(
    run: Run,
    data: Data,
    options: DataOptions,
    name: Annotated[
        str | None,
        typer.Option(help="What to call the evaluation; by default 'test' for the run's own test images, else DATA."),
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="A split by 'pfdl split' whose test sets are used.")] = None,
    device: Device = "auto",
) -> None:
    """Test a trained model on any images of its classes.

    On the data that it was trained on, the test images of its own split are used; on other data the test set that it
    has, or else all images. None that the model was trained on is tested. The figures are also written to
    evaluations/NAME.json in the run folder, beside those of other data.

        pfdl evaluate runs/erm photos/

        pfdl evaluate runs/erm other_photos/ --name winter
    """
    from pfdl._internal.devices import resolve_device
    from pfdl._internal.runs import MANIFEST
    from pfdl.data import read_manifest
    from pfdl.vision import load_model
    from pfdl.vision.evaluation import find_test_set

    device = resolve_device(device)
    trained = load_model(run)
    own = read_manifest(trained.folder / MANIFEST)
    given = None if manifest is None else read_manifest(manifest)
    source = open_source(data, replace(options, on_bad_image="skip"), given or own)
    split = given or find_test_set(trained, source)[0]
    if split != own:
        print_understood(source, split)
    path = evaluate_and_print(trained, source, split, device, name=name, data=str(manifest or data), trained_on=own)
    typer.echo(path)
