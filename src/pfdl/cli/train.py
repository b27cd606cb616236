"""The commands that split images and train a classifier: parse, call, print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pfdl._internal.settings import check_settings, describe_settings, setting
from pfdl._internal.text import printable
from pfdl.cli.common import (
    Data,
    evaluate_and_print,
    open_source,
    print_understood,
    say_sentence,
)
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions, TrainingConfig

if TYPE_CHECKING:
    from pfdl.data.manifest import Manifest
    from pfdl.data.sources import ContextSource
    from pfdl.vision.checkpoint import TrainedModel


@dataclass(frozen=True)
class RunOptions:
    """Where a training runs and what it leaves; none of it is part of what is learnt.

    Args:
        ratio: Such as 5:1: in training, images of the dominant context to images of each other, the
            rest left out; natural uses all images. For data with contexts and without sets of its
            own.
        manifest: A split by 'pfdl split' instead of one from ratio and seed.
        output: Run folder; by default runs/train-BACKBONE-OBJECTIVE-SEED.
        device: cpu or cuda; auto takes a GPU where there is one.
        devices: Devices on each node, with a process for each; under torchrun or srun, leave it
            out.
        strategy: How several devices share the model: ddp, a whole one on each; fsdp, a part on
            each; auto is ddp.
        workers: Processes that load images, for each device; 0 is best for data kept in memory (up
            to 2 GiB).
        tensorboard: Whether to log for TensorBoard, too, where it is installed.
        export: Whether to write an ONNX file too, where onnxruntime is installed.
    """

    ratio: str = setting("natural", shown=True)
    manifest: str | None = setting(None)
    output: str | None = setting(None, shown=True, short="-o")
    device: str = setting("auto", shown=True)
    devices: int | None = setting(None, minimum=1, shown=True)
    strategy: Literal["auto", "ddp", "fsdp"] = setting("auto")
    workers: int = setting(0, minimum=0)
    tensorboard: bool = setting(True)
    export: bool = setting(True, shown=True)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.manifest is not None and self.ratio != "natural":
            raise ValueError(
                f"the manifest says which image is in which set; leave out the ratio {self.ratio}."
            )


@takes_settings()
def train(data: Data, config: TrainingConfig, options: DataOptions, run: RunOptions) -> None:
    """Train a classifier, then test it by class and context, and at dominant ratios where the split
    has them.

    Data with a test set of its own keeps it; other data is split. The model that is kept is the
    best on validation images of the training distribution; test images play no part.
    After Ctrl-C or a crash the same command resumes the training.
    With --devices, or under torchrun or srun, several processes train together in one run folder.

        pfdl train shapes --backbone small --epochs 5

        pfdl train photos/ --backbone resnet50 --objective pfdl --set pfdl.weight=0.1

        pfdl train photos/ --contexts inferred --sampler groups

        pfdl train photos/ --devices 4 --set precision=bf16
    """
    from pfdl._internal.processes import OtherProcessError, rank
    from pfdl._internal.validation import resolve_device
    from pfdl.data import read_manifest
    from pfdl.vision import load_model, train as train_network
    from pfdl.vision.launching import make_fabric

    device = resolve_device(run.device)
    # Start the processes that train together before images are read, which each does.
    make_fabric(device, run.devices, run.strategy)
    is_first = rank() == 0
    name = f"train-{config.backbone.replace('/', '-')}-{config.objective}-{config.seed}"
    folder = Path(run.output or Path("runs") / name)
    given = None if run.manifest is None else read_manifest(run.manifest)
    source = open_source(data, options, given)
    split, note = _find_split(source, given, run.ratio, config.seed)
    if is_first:
        if note:
            typer.echo(f"Note: {note}", err=True)
        say_sentence(_describe(config, device), err=True)
        print_understood(split)
    try:
        train_network(
            config,
            source,
            split,
            folder,
            device=device,
            devices=run.devices,
            strategy=run.strategy,
            num_workers=run.workers,
            tensorboard=run.tensorboard,
            progress=True,
        )
    except KeyboardInterrupt:
        if is_first:
            raise
        raise typer.Exit from None  # the first process alone answers
    except OtherProcessError:  # which has said why
        raise typer.Exit(1) from None
    if is_first:
        evaluate_and_print(load_model(folder), source, split, device)
        typer.echo(folder / "model.safetensors")
        trained = load_model(folder)  # on the CPU
        if run.export and not trained.config.num_features:
            _export(trained, folder / "export")


def _find_split(
    source: ContextSource, given: Manifest | None, ratio: str, seed: int
) -> tuple[Manifest, str]:
    """Return the split to train on, and a note where the data names contexts that it has not."""
    from pfdl.data import make_split
    from pfdl.data.splits import name_contexts

    if given is None:
        return make_split(source, ratio=ratio, seed=seed), ""
    return name_contexts(given, source)


def _export(trained: TrainedModel, folder: Path) -> None:
    """Write an ONNX file where that can be done, and say so."""
    from pfdl.vision import export

    try:
        for path in export(trained, folder):
            typer.echo(path)
    except ImportError as error:
        typer.echo(f"No ONNX file: {error}", err=True)


def _describe(config: TrainingConfig, device: str) -> str:
    """Say what is trained, defaults included."""
    return (
        f"{config.backbone}, objective {config.objective}, contexts {config.contexts}, sampler"
        f" {config.sampler}, {config.epochs} epoch{'s' * (config.epochs > 1)} on {device}: images"
        f" of {config.image_size}×{config.image_size} pixels, batches of {config.batch_size}. 'pfdl"
        " train --help' says how to change it."
    )


@takes_settings()
def split(
    data: Data,
    options: DataOptions,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The manifest, a .csv file; a .json file is written beside it."
        ),
    ] = Path("manifest.csv"),
    ratio: Annotated[str, typer.Option(help=describe_settings(RunOptions)["ratio"])] = "natural",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split: sides and dominant contexts.")
    ] = 0,
    validation: Annotated[
        float, typer.Option(help="Share of the training set that is held out.")
    ] = 0.1,
) -> None:
    """Split images into a manifest that others can repeat.

    Data with a test set of its own keeps it; other data is split 60:40, and all images are used.
    With a ratio, data with contexts is split by the proportional-bias protocol of NICO, which
    leaves images out. Every file is decoded once and hashed; no picture is in training and in a
    test, whatever its name.

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
