"""The command that tests a trained model: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import (
    ContextColumn,
    Data,
    Device,
    ImageRoot,
    LabelColumn,
    Layout,
    PathColumn,
    Run,
    SplitColumn,
    Superclass,
    TrainedTest,
    answering_mistakes,
)
from pfdl.cli.images import evaluate_and_print, name_columns, open_source, print_understood


def evaluate(
    run: Run,
    data: Data,
    name: Annotated[
        str | None,
        typer.Option(help="What to call the evaluation; by default 'test' for the run's own test images, else DATA."),
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="A split by 'pfdl split' whose test sets are used.")] = None,
    test: TrainedTest = None,
    path_column: PathColumn = None,
    label_column: LabelColumn = None,
    context_column: ContextColumn = None,
    split_column: SplitColumn = None,
    image_root: ImageRoot = None,
    superclass: Superclass = None,
    layout: Layout = None,
    device: Device = "auto",
) -> None:
    """Test a trained model on any images of its classes.

    On the data that it was trained on, the test images of its own split are used; on other data the test set that it
    has, or else all images. None that the model was trained on is tested. The figures are also written to
    evaluations/NAME.json in the run folder, beside those of other data.

        pfdl evaluate runs/erm photos/

        pfdl evaluate runs/erm other_photos/ --name winter
    """
    with answering_mistakes():
        from pfdl._internal.devices import resolve_device
        from pfdl._internal.runs import MANIFEST
        from pfdl.data import read_manifest
        from pfdl.vision.checkpoint import load_model
        from pfdl.vision.evaluation import find_test_set

        device = resolve_device(device)
        trained = load_model(run)
        columns = name_columns(
            path_column, label_column, context_column, split_column, image_root=image_root, layout=layout
        )
        own = read_manifest(trained.folder / MANIFEST)
        given = None if manifest is None else read_manifest(manifest)
        source = open_source(data, superclass, "skip", given or own, columns=columns, test=test)
        split = given or find_test_set(trained, source)[0]
        if split != own:
            print_understood(source, split)
        path = evaluate_and_print(trained, source, split, device, name=name, data=str(manifest or data), trained_on=own)
        typer.echo(path)
