"""The command that trains a classifier: parses, calls, prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from pfdl._internal.settings import check_settings, setting
from pfdl.cli.common import Data
from pfdl.cli.images import open_source
from pfdl.cli.options import takes_settings
from pfdl.cli.seeds import Seeds, print_models
from pfdl.cli.workers import Parallel
from pfdl.vision.config import DataOptions, TrainingConfig


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
            installed), wandb, mlflow; csv for nothing else.
        jobs: How many of the seeds to train at a time on this machine; -1 for all cores.
        backend: joblib: processes of this machine; ray: the Ray cluster that RAY_ADDRESS names, else a local one.
        gpus_per_task: With ray, the part of a GPU that each training asks for: 0.1 puts ten on one GPU.
        export: Whether to write an ONNX file too, where onnxruntime is installed.
    """

    ratio: str = setting("natural", shown=True)
    manifest: str | None = setting(None)
    output: str | None = setting(None, shown=True, short="-o")
    seeds: int = setting(1, minimum=1, shown=True)
    device: str = setting("auto", shown=True)
    devices: int | None = setting(None, minimum=1, shown=True)
    nodes: int | None = setting(None, minimum=1)
    strategy: str = setting("auto", choices=("auto", "ddp", "fsdp"))
    workers: int = setting(0, minimum=0)
    loggers: str | None = setting(None)
    jobs: int = setting(1)
    backend: str = setting("joblib")
    gpus_per_task: float | None = setting(None)
    export: bool = setting(True, shown=True)

    def __post_init__(self) -> None:
        check_settings(self)


@takes_settings(example="pfdl.weight=0.1 or precision=bf16")
def train(data: Data, config: TrainingConfig, options: DataOptions, run: RunOptions) -> None:
    """Train a classifier, then test it by class and context, and at dominant ratios where the split has them.

    Data with a test set of its own keeps it, and --test names one; other data is split. The model that is kept is the
    best on validation images of the training distribution; test images play no part.
    After Ctrl-C or a crash the same command resumes the training.
    With --devices, or under torchrun or srun, several processes train together in one run folder.

        pfdl train shapes --backbone cn --epochs 5

        pfdl train photos/ --backbone resnet50 --objective pfdl --patience 20

        pfdl train photos/ --contexts inferred --sampler groups --seeds 3

        pfdl train photos/ --devices 4 --set precision=bf16
    """
    from pfdl._internal.processes import rank
    from pfdl.data import make_split, read_manifest

    parallel = Parallel(run.jobs, run.backend, run.gpus_per_task)
    device = parallel.find_device(run.device)
    _start_processes(parallel, device, run)  # before images are read, which each does
    is_first = rank() == 0
    if is_first:
        typer.echo(_describe(config, device), err=True)
    first, name = config.seed, f"train-{config.backbone.replace('/', '-')}-{config.objective}-{config.seed}"
    base = Path(run.output or Path("runs") / name)
    given = None if run.manifest is None else read_manifest(run.manifest)
    source = open_source(data, options, given)
    splits = {seed: given or make_split(source, ratio=run.ratio, seed=seed) for seed in range(first, first + run.seeds)}
    runs = {seed: base if run.seeds == 1 else base / f"seed-{seed}" for seed in splits}
    trainings = Seeds(splits, runs, source, config, device)
    loggers = None if run.loggers is None else run.loggers.split(",")
    if parallel == Parallel():
        where = {"devices": run.devices, "nodes": run.nodes, "strategy": run.strategy}
        trainings.train_in_turn(**where, num_workers=run.workers, loggers=loggers)
    else:
        images = {"data": data, **options.arguments()}
        trainings.train_side_by_side(parallel, images=images, num_workers=run.workers, loggers=loggers)
    if is_first:
        print_models(runs, base, export=run.export)


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
