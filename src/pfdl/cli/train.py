"""The command that trains a classifier: parses, calls, prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer

from pfdl._internal.settings import check_settings, setting
from pfdl.cli.common import Data, answering_stops
from pfdl.cli.images import ask_to_go_on, evaluate_and_print, open_source, print_evaluation, print_understood
from pfdl.cli.options import Parallel, takes_settings
from pfdl.vision.config import DataOptions, TrainingConfig

if TYPE_CHECKING:
    from pfdl._internal.workers import Workers
    from pfdl.data.manifest import Manifest
    from pfdl.data.sources import ContextSource

SEEDS = "seeds.csv"


@dataclass(frozen=True)
class RunOptions:
    """Where a training runs and what it leaves; none of it is part of what is learnt.

    Args:
        ratio: Such as 5:1: in training, images of the dominant context to images of each other, the rest left out;
            natural uses all images. For data with contexts and without sets of its own.
        manifest: A split by 'pfdl split' instead of one from ratio and seed.
        output: Run folder; by default runs/train-BACKBONE-OBJECTIVE-SEED.
        seeds: Train with this many seeds, from the first on, and print a table of them.
        device: cpu or cuda; auto takes a GPU where there is one.
        devices: Devices on each node, with a process for each; under torchrun or srun, leave it out.
        nodes: Number of machines that train together.
        strategy: How several devices share the model: ddp, a whole one on each; fsdp, a part on each; auto is ddp.
        workers: Processes that load images, for each device; 0 is best for data kept in memory (up to 2 GiB).
        loggers: Where to log in addition to metrics.csv, with commas between: tensorboard (the default where
            installed), wandb; csv for nothing else.
        export: Whether to write an ONNX file too, where onnxruntime is installed.
    """

    ratio: str = setting("natural", shown=True)
    manifest: str | None = setting(None)
    output: str | None = setting(None, shown=True, short="-o")
    seeds: int = setting(1, minimum=1, shown=True)
    device: str = setting("auto", shown=True)
    devices: int | None = setting(None, minimum=1, shown=True)
    nodes: int | None = setting(None, minimum=1)
    strategy: Literal["auto", "ddp", "fsdp"] = setting("auto")
    workers: int = setting(0, minimum=0)
    loggers: str | None = setting(None)
    export: bool = setting(True, shown=True)

    def __post_init__(self) -> None:
        check_settings(self)


@takes_settings(example="pfdl.weight=0.1 or precision=bf16")
def train(data: Data, config: TrainingConfig, options: DataOptions, run: RunOptions, parallel: Parallel) -> None:
    """Train a classifier, then test it by class and context, and at dominant ratios where the split has them.

    Data with a test set of its own keeps it, and --test names one; other data is split. The model that is kept is the
    best on validation images of the training distribution; test images play no part.
    After Ctrl-C or a crash the same command resumes the training.
    With --devices, or under torchrun or srun, several processes train together in one run folder.

        pfdl train shapes --backbone small --epochs 5

        pfdl train photos/ --backbone resnet50 --objective pfdl --patience 20

        pfdl train photos/ --contexts inferred --sampler groups --seeds 3

        pfdl train photos/ --devices 4 --set precision=bf16
    """
    from pfdl._internal.processes import rank
    from pfdl.data import make_split, read_manifest

    device = parallel.find_device(run.device)
    _start_processes(parallel, device, run)  # before images are read, which each does
    is_first = rank() == 0
    if is_first:
        typer.echo(_describe(config, device), err=True)
    name = f"train-{config.backbone.replace('/', '-')}-{config.objective}-{config.seed}"
    base = Path(run.output or Path("runs") / name)
    given = None if run.manifest is None else read_manifest(run.manifest)
    source = open_source(data, options, given)
    trainings = [
        Training(
            replace(config, seed=seed),
            given or make_split(source, ratio=run.ratio, seed=seed),
            base if run.seeds == 1 else base / f"seed-{seed}",
        )
        for seed in range(config.seed, config.seed + run.seeds)
    ]
    how = {
        "device": device,
        "num_workers": run.workers,
        "loggers": None if run.loggers is None else run.loggers.split(","),
    }
    with answering_stops():
        if parallel == Parallel():
            how |= {"devices": run.devices, "nodes": run.nodes, "strategy": run.strategy}
            for one in trainings:
                _train_here(one, source, is_first, how)
        else:
            workers = parallel.execution(device, share_cores=True).workers
            _train_side_by_side(trainings, source, workers, {"data": data, **options.arguments()}, how)
    if is_first:
        _print_models(trainings, export=run.export)
    if is_first and len(trainings) > 1:
        _print_table(trainings, base / SEEDS)


class Training(NamedTuple):
    """One seed: how to train, on which images, and the run folder."""

    config: TrainingConfig
    split: Manifest
    folder: Path


def _train_here(one: Training, source: ContextSource, is_first: bool, how: Mapping[str, Any]) -> None:
    """Train and test with one seed; of several processes only the first prints."""
    from pfdl.vision import load_model, train

    if is_first:
        print_understood(source, one.split)
    train(one.config, source, one.split, one.folder, progress=True, on_unconfirmed=ask_to_go_on, **how)
    if is_first:
        evaluate_and_print(load_model(one.folder), source, one.split, how["device"])


def _train_side_by_side(
    trainings: Sequence[Training],
    source: ContextSource,
    workers: Workers,
    images: Mapping[str, Any],
    how: Mapping[str, Any],
) -> None:
    """Train and test with several seeds at a time, each of which opens the images for itself."""
    from pfdl.vision.evaluation import OWN, read_evaluations

    for one in trainings:
        print_understood(source, one.split)
    tasks = [{"one": one} for one in trainings]
    for done, (task, _) in enumerate(workers.run(partial(_train_and_test, images=images, how=how), tasks), start=1):
        typer.echo(f"{done} of {len(tasks)} trainings done: seed {task['one'].config.seed}", err=True)
    for one in trainings:
        print_evaluation(one.folder, read_evaluations(one.folder)[OWN])


def _train_and_test(one: Training, images: Mapping[str, Any], how: Mapping[str, Any]) -> None:
    """Train with one seed in a process of its own, then test; all results are in the run folder."""
    from pfdl.data import open_images
    from pfdl.vision import evaluate, load_model, train
    from pfdl.vision.evaluation import save_evaluation

    source = open_images(**images, like=one.split)
    train(one.config, source, one.split, one.folder, devices=1, nodes=1, **how)
    save_evaluation(one.folder, evaluate(load_model(one.folder), source, one.split, device=how["device"]))


def _print_models(trainings: Sequence[Training], *, export: bool) -> None:
    """Print where the trained models are, and export them where that is possible."""
    from pfdl.vision.checkpoint import load_model
    from pfdl.vision.exporting import export as write

    for one in trainings:
        typer.echo(one.folder / "model.safetensors")
        try:
            for path in write(load_model(one.folder), one.folder / "export") if export else ():
                typer.echo(path)
        except ImportError as error:
            typer.echo(f"No ONNX file: {error}", err=True)


def _print_table(trainings: Sequence[Training], output: Path) -> None:
    """Print the mean and standard error of each accuracy over seeds, and write every figure to a table."""
    import pandas as pd

    from pfdl._internal.files import TEMPORARY, write_atomically
    from pfdl.vision.evaluation import OWN, read_evaluations

    lines = [
        {"seed": one.config.seed, **line} for one in trainings for line in read_evaluations(one.folder)[OWN].lines()
    ]
    table = pd.DataFrame(lines)
    for unfinished in output.parent.glob(f"{TEMPORARY}*"):
        unfinished.unlink(missing_ok=True)  # a killed process was about to write it
    write_atomically(output, table.to_csv(index=False, float_format="%.4f"))
    typer.echo(f"Accuracy (%) over {len(trainings)} seeds, mean ± standard error:")
    for test, row in table.groupby("test", sort=False)["accuracy"].agg(["mean", "sem"]).iterrows():
        typer.echo(f"  {test:<12} {row['mean']:5.1f} ± {row['sem']:.1f}")
    typer.echo(output)


def _describe(config: TrainingConfig, device: str) -> str:
    """Say what is trained, defaults included."""
    is_plain = config.objective == "erm" and config.contexts == "hidden" and config.sampler == "shuffle"
    how = [f"objective {config.objective}{' (plain training)' * is_plain}"]
    how += [f"contexts {config.contexts}"] * (config.contexts != "hidden")
    how += [f"sampler {config.sampler}"] * (config.sampler != "shuffle")
    return (
        f"{config.backbone}, {', '.join(how)}, {config.epochs} epochs on {device}: images of {config.image_size}×"
        f"{config.image_size} pixels, batches of {config.batch_size}. 'pfdl train --help' says how to change it."
    )


def _start_processes(parallel: Parallel, device: str, run: RunOptions) -> None:
    """Start the processes that train together; trainings side by side have one each."""
    from pfdl.vision.launching import choose_devices, make_fabric

    if parallel == Parallel():
        make_fabric(choose_devices(device, run.devices, run.nodes, run.strategy))
    elif (processes := choose_devices("cpu", run.devices, run.nodes, run.strategy).processes) > 1:
        raise ValueError(
            f"jobs, backend and gpus_per_task run trainings side by side, each in one process, but there are "
            f"{processes} for one training; leave those settings out, or --devices, nodes, torchrun and srun."
        )
