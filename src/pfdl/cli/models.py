"""The commands that use a trained model: test it, classify with it, refit its last layer, export
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl._internal.text import printable, spreadsheet_cell
from pfdl._internal.validation import resolve_device
from pfdl.cli.common import (
    Data,
    Device,
    Run,
    check_there,
    evaluate_and_print,
    find_test,
    open_run,
    say,
    say_loading,
)
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions


@takes_settings(without=("on_bad_image",))
def evaluate(
    run: Run,
    data: Data,
    options: DataOptions,
    name: Annotated[
        str | None,
        typer.Option(
            help=(
                "What to call the evaluation; by default 'test' for the run's own test images, else"
                " DATA."
            )
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Test a trained model on any images of its classes.

    On the data that it was trained on, the test images of its own split are used; on other data the
    test set that it has, or else all images. None that the model was trained on is tested. The
    figures are also written to evaluations/NAME.json in the run folder, beside those of other data.

        pfdl evaluate runs/erm photos/

        pfdl evaluate runs/erm other_photos/ --name winter
    """
    from pfdl.vision.evaluation import OWN

    device = resolve_device(device)
    trained, own, source = open_run(run, data, options)
    split = find_test(own, source)
    if name is None and split == own:
        name = OWN
    elif name is None:
        stem = Path(data).resolve().stem
        name = "test-data" if stem == OWN else stem
    path = evaluate_and_print(trained, source, split, device, name=name, trained_on=own)
    typer.echo(path)


@takes_settings(without=("layout",))
def predict(
    run: Run,
    options: DataOptions,
    images: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMAGES…",
            help=(
                "Image files, folders of them, or tables with a line per image (.csv, .tsv,"
                " .parquet, CelebA's .txt). With --features FILE none: its rows are classified."
            ),
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The table to write.")] = Path(
        "predictions.csv"
    ),
    device: Device = "auto",
) -> None:
    """Classify images: a table with the prediction and the probability of each class, a line for
    each image.

    Nothing but the images is read: they need no labels, and folders may be arranged in any way.

        pfdl predict runs/erm photos/ -o predictions.csv
    """
    if (options.features is None) == (images is None):
        raise ValueError("give either images or a file of their features: --features FILE.")
    for named in images or []:
        check_there("file" if named.suffix else "folder", named, "name images or a folder of them")
    say_loading()
    from pfdl._internal.files import write_atomically
    from pfdl.data.features import read_features
    from pfdl.data.images import BadImage
    from pfdl.data.sources import describe_bad_images
    from pfdl.vision import load_model, predict as classify
    from pfdl.vision.prediction import predict_features

    trained = load_model(run)
    bad_images: list[BadImage] = []
    if options.features is not None:
        table = predict_features(trained, read_features(options.features))
    else:
        place = resolve_device(device)
        say(f"Classifying on {place}")
        table, bad_images = classify(
            trained,
            images,
            path_column=options.named_columns().get("path"),
            image_root=options.image_root,
            on_bad_image=options.on_bad_image,
            device=place,
        )
    if bad_images:
        typer.echo(describe_bad_images("what is given", bad_images, "They are left out."), err=True)
    for name, count in table["prediction"].value_counts().items():
        typer.echo(f"{printable(name)}: {count}")
    words = ["path", "prediction"]
    table[words] = table[words].map(spreadsheet_cell)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, table.to_csv(index=False, float_format="%.6f"))
    typer.echo(output)


@takes_settings(without=("on_bad_image",))
def refit(
    run: Run,
    data: Data,
    options: DataOptions,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The new run; by default RUN-refit.")
    ] = None,
    contexts: Annotated[
        str,
        typer.Option(
            help="inferred: found in the images; known: those of the data (class/context/image)."
        ),
    ] = "inferred",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    device: Device = "auto",
) -> None:
    """Refit the last layer of a trained network so that all groups count equally (DFR), as a run of
    its own.

    A network trained without regard to contexts often has learnt what it needs and uses it badly in
    its last layer. This takes seconds where training takes hours. DATA is what the run was trained
    on, and its validation images are refitted on. No test image is used for that; at the end the
    new run is tested like the old one.

        pfdl refit runs/erm photos/

        pfdl diagnose runs/erm-refit photos/ --compare runs/erm
    """
    from pfdl.vision import load_model, refit as refit_run

    device = resolve_device(device)
    trained, manifest, source = open_run(run, data, options)
    folder = output or trained.folder.with_name(f"{trained.folder.name}-refit")
    readout, sentence = refit_run(
        trained, source, manifest, folder, contexts=contexts, device=device, seed=seed
    )
    typer.echo(printable(sentence), err=True)
    left_out = printable(", ".join(readout.left_out))
    aside = f" (left out as too small: {left_out})" if left_out else ""
    typer.echo(
        f"Refitted on {readout.samples_per_group} validation images of each group{aside}, 20 draws;"
        f" penalty C = {readout.strength:g}, chosen by the worst group of held-out halves"
        f" ({100 * readout.held_out_worst:.1f} %).",
        err=True,
    )
    if any(name.startswith("test") for name in manifest.set_names):
        evaluate_and_print(load_model(folder), source, manifest, device)
    typer.echo(folder)


def export(
    run: Run,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where the files go; by default RUN/export."),
    ] = None,
) -> None:
    """Write a trained model as ONNX, checked against PyTorch.

    preprocessing.json says what to do to an image before it enters.
    """
    say_loading()
    from pfdl.vision import export as write, load_model
    from pfdl.vision.embedding import on_images

    for path in write(on_images(load_model(run)), output or run / "export"):
        typer.echo(path)
