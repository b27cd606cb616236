"""The command that trains a classifier: parses, calls, prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pfdl._internal.text import printable
from pfdl.cli.common import Data, Device, OnBadImage, Superclass, answering_mistakes
from pfdl.cli.images import evaluate_and_print, open_source

if TYPE_CHECKING:
    from pfdl.vision.checkpoint import TrainedModel


def train(
    data: Data,
    backbone: Annotated[
        str, typer.Option("--backbone", "-b", help="Such as resnet18, cn, timm/…; see 'pfdl list backbones'.")
    ] = "resnet18",
    objective: Annotated[
        str, typer.Option("--objective", "-O", help="Such as erm, pfdl, stablenet+pfdl; see 'pfdl list objectives'.")
    ] = "pfdl",
    contexts: Annotated[
        str,
        typer.Option(help="What the objective may know of contexts: hidden, known (from the folders) or inferred."),
    ] = "hidden",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PART.NAME=VALUE", help="A setting of the objective: --set pfdl.weight=0.1"),
    ] = None,
    ratio: Annotated[str, typer.Option(help="Images of the dominant context to those of each other, in training.")] = (
        "5:1"
    ),
    manifest: Annotated[
        Path | None,
        typer.Option(help="A split by 'pfdl split' instead of one from --ratio and --seed."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run folder; by default runs/train-BACKBONE-OBJECTIVE-SEED.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 160,
    decay_every: Annotated[int, typer.Option(min=1, help="Epochs until the learning rate falls to a tenth.")] = 80,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many epochs without a better validation accuracy.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Images per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Of SGD, at the start.")] = 0.01,
    image_size: Annotated[int, typer.Option(min=1, help="Images are scaled and cut to this square.")] = 64,
    small_stem: Annotated[
        bool, typer.Option("--small-stem", help="ResNets: a 3×3 stem without pooling, for small images.")
    ] = False,
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Start from the library's weights (a download).")
    ] = False,
    precision: Annotated[str, typer.Option(help="32, or bf16 for mixed precision.")] = "32",
    workers: Annotated[int, typer.Option(min=0, help="Processes that load images; 0 is right for cached sets.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the first weights and all that training draws.")] = 0,
    superclass: Superclass = None,
    on_bad_image: OnBadImage = "error",
    device: Device = "auto",
    export: Annotated[bool, typer.Option(help="Write an ONNX file too, where onnxruntime is installed.")] = True,
) -> None:
    """Train a classifier, then test it at seven dominant ratios and by class and context.

    The model that is kept is the best on validation images of the training distribution; test images play no part.
    After Ctrl-C or a crash the same command goes on where it was.

        pfdl train contexts --backbone cn --epochs 5

        pfdl train photos/ --backbone resnet50 --objective pfdl --patience 20
    """
    with answering_mistakes():
        from pfdl._internal.devices import resolve_device
        from pfdl.data import make_split, read_manifest
        from pfdl.vision.backbones import make_backbone
        from pfdl.vision.checkpoint import load_model
        from pfdl.vision.training import TrainingConfig, TrainingStoppedError
        from pfdl.vision.training import train as run

        device = resolve_device(device)
        config = TrainingConfig(
            backbone=backbone,
            objective=objective,
            contexts=contexts,
            objective_settings=_parse_settings(objective, setting or []),
            image_size=image_size,
            small_stem=small_stem,
            pretrained=pretrained,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            decay_every=decay_every,
            patience=patience,
            precision=precision,
            seed=seed,
        )
        folder = output or Path("runs") / f"train-{backbone.replace('/', '-')}-{objective}-{seed}"
        make_backbone(backbone, 2, image_size=image_size, small_stem=small_stem)  # a typing error shows at once
        split = None if manifest is None else read_manifest(manifest)
        source = open_source(data, superclass, on_bad_image, split)
        split = split or make_split(source, ratio=ratio, seed=seed)
        for note in split.notes:
            typer.echo(f"Note: {printable(note)}", err=True)
        try:
            run(config, source, split, folder, device=device, num_workers=workers, progress=sys.stderr.isatty())
        except TrainingStoppedError as stopped:
            typer.echo(stopped, err=True)
            raise typer.Exit(130) from None
        trained = load_model(folder)
        evaluate_and_print(trained, source, split, device)
        typer.echo(folder / "model.safetensors")
        if export:
            _export_if_possible(trained)


def _parse_settings(objective: str, settings: list[str]) -> dict[str, dict[str, Any]]:
    """From ``pfdl.weight=0.1`` to a dictionary, checked before anything is read or trained."""
    from pfdl.objectives import make_objective

    parsed: dict[str, dict[str, Any]] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        part, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise ValueError(f"--set is {text!r}; give PART.NAME=VALUE, such as pfdl.weight=0.1.")
        try:
            parsed.setdefault(part, {})[name] = json.loads(value)
        except ValueError:
            parsed.setdefault(part, {})[name] = value
    try:
        make_objective(objective, 2, num_classes=2, num_contexts=2, **parsed)
    except TypeError as error:
        raise ValueError(f"--set does not fit the objective {objective!r}: {error}.") from None
    return parsed


def _export_if_possible(trained: TrainedModel) -> None:
    from pfdl.vision.export import export as write

    try:
        for path in write(trained, trained.folder / "export"):
            typer.echo(path)
    except ImportError as error:
        typer.echo(f"No ONNX file: {error}", err=True)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(train)
