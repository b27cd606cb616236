"""The command that trains a classifier: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import (
    ContextColumn,
    Data,
    Device,
    GroupColumn,
    LabelColumn,
    OnBadImage,
    PathColumn,
    Ratio,
    SplitColumn,
    Superclass,
    Test,
    answering_mistakes,
)
from pfdl.cli.images import name_columns, open_source
from pfdl.cli.seeds import Seeds, print_models
from pfdl.cli.settings import parse_settings
from pfdl.cli.workers import Backend, GpusPerTask, Jobs, Parallel

METHOD, OPTIMISATION, RUN = "What is trained", "How it is trained", "Where and with what"


def train(
    data: Data,
    test: Test = None,
    backbone: Annotated[
        str,
        typer.Option(
            "--backbone",
            "-b",
            help="Such as resnet18, cn, timm/…; see 'pfdl list backbones'.",
            rich_help_panel=METHOD,
        ),
    ] = "resnet18",
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            "-O",
            help="Such as erm, pfdl, irm+pfdl; see 'pfdl list objectives'.",
            rich_help_panel=METHOD,
        ),
    ] = "pfdl",
    contexts: Annotated[
        str,
        typer.Option(
            help="What training may know of contexts: hidden, known (from the folders) or inferred.",
            rich_help_panel=METHOD,
        ),
    ] = "hidden",
    infer_by: Annotated[
        str,
        typer.Option(
            help="How contexts are inferred: auto tries all; pooled, within (clusters), early (as SPARE does), errors "
            "(what a short linear training gets wrong, after JTT).",
            rich_help_panel=METHOD,
        ),
    ] = "auto",
    confirm: Annotated[
        bool,
        typer.Option(
            help="Use inferred contexts only if balancing them helps on held-out training images; --no-confirm uses "
            "the most stable ones as they are.",
            rich_help_panel=METHOD,
        ),
    ] = True,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PART.NAME=VALUE",
            help="A setting of the objective: --set pfdl.weight=0.1",
            rich_help_panel=METHOD,
        ),
    ] = None,
    sampler: Annotated[
        str,
        typer.Option(
            help="shuffle, or groups: draw every class in every context equally often.",
            rich_help_panel=METHOD,
        ),
    ] = "shuffle",
    select: Annotated[
        str,
        typer.Option(
            help="Which validation accuracy decides the epoch that is kept: accuracy, worst-class or worst-group.",
            rich_help_panel=METHOD,
        ),
    ] = "accuracy",
    pretrained: Annotated[
        bool,
        typer.Option("--pretrained", help="Start from the library's weights (a download).", rich_help_panel=METHOD),
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(help="Start from a local file of weights, .safetensors or .pth.", rich_help_panel=METHOD),
    ] = None,
    small_stem: Annotated[
        bool,
        typer.Option(
            "--small-stem", help="ResNets: a 3×3 stem without pooling, for small images.", rich_help_panel=METHOD
        ),
    ] = False,
    ratio: Ratio = "5:1",
    manifest: Annotated[
        Path | None,
        typer.Option(help="A split by 'pfdl split' instead of one from --ratio and --seed."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run folder; by default runs/train-BACKBONE-OBJECTIVE-SEED.")
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=1, help="Passes over the training images.", rich_help_panel=OPTIMISATION)
    ] = 160,
    batch_size: Annotated[
        int, typer.Option(min=2, help="Images per step, over all devices.", rich_help_panel=OPTIMISATION)
    ] = 64,
    image_size: Annotated[
        int, typer.Option(min=1, help="Images are scaled and cut to this square.", rich_help_panel=OPTIMISATION)
    ] = 64,
    optimizer: Annotated[str, typer.Option(help="sgd or adamw.", rich_help_panel=OPTIMISATION)] = "sgd",
    learning_rate: Annotated[
        float, typer.Option(help="Learning rate at the start.", rich_help_panel=OPTIMISATION)
    ] = 0.01,
    momentum: Annotated[float, typer.Option(help="Momentum of SGD.", rich_help_panel=OPTIMISATION)] = 0.9,
    weight_decay: Annotated[
        float, typer.Option(help="Weight decay of the optimiser.", rich_help_panel=OPTIMISATION)
    ] = 1e-4,
    schedule: Annotated[
        str,
        typer.Option(
            help="step: a tenth of the learning rate every --decay-every epochs; cosine: down to 0 at the end.",
            rich_help_panel=OPTIMISATION,
        ),
    ] = "step",
    decay_every: Annotated[
        int, typer.Option(min=1, help="Epochs per step of the schedule.", rich_help_panel=OPTIMISATION)
    ] = 80,
    augment: Annotated[
        str, typer.Option(help="none, flip-shift or randaugment.", rich_help_panel=OPTIMISATION)
    ] = "flip-shift",
    label_smoothing: Annotated[
        float, typer.Option(help="Share of the target spread over all classes.", rich_help_panel=OPTIMISATION)
    ] = 0.0,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop after this many epochs without a better validation accuracy.",
            rich_help_panel=OPTIMISATION,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split, the first weights and everything random in training.")
    ] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Train with this many seeds, from --seed on, and print a table of them.")
    ] = 1,
    precision: Annotated[str, typer.Option(help="32, or bf16 for mixed precision.", rich_help_panel=RUN)] = "32",
    device: Device = "auto",
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Devices on each node, with a process for each; under torchrun or srun, leave it out.",
            rich_help_panel=RUN,
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Number of machines that train together.", rich_help_panel=RUN)
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="How several devices share the model: ddp, a whole one on each; fsdp, a part on each; auto is ddp.",
            rich_help_panel=RUN,
        ),
    ] = "auto",
    workers: Annotated[
        int,
        typer.Option(
            min=0,
            help="Processes that load images, for each device; 0 is best for data kept in memory (up to 2 GiB).",
            rich_help_panel=RUN,
        ),
    ] = 0,
    logger: Annotated[
        list[str] | None,
        typer.Option(
            help="Where to log in addition to metrics.csv: tensorboard (the default where installed), wandb, mlflow; "
            "csv for nothing else.",
            rich_help_panel=RUN,
        ),
    ] = None,
    jobs: Jobs = 1,
    backend: Backend = "joblib",
    gpus_per_task: GpusPerTask = None,
    path_column: PathColumn = None,
    label_column: LabelColumn = None,
    context_column: ContextColumn = None,
    split_column: SplitColumn = None,
    group_column: GroupColumn = None,
    superclass: Superclass = None,
    on_bad_image: OnBadImage = "error",
    export: Annotated[bool, typer.Option(help="Write an ONNX file too, where onnxruntime is installed.")] = True,
) -> None:
    """Train a classifier, then test it by class and context, and at dominant ratios where the split has them.

    Data with a test set of its own keeps it, and --test names one; other data is split. The model that is kept is the
    best on validation images of the training distribution; test images play no part.
    After Ctrl-C or a crash the same command resumes the training.
    With --devices, or under torchrun or srun, several processes train together in one run folder.

        pfdl train shapes --backbone cn --epochs 5

        pfdl train photos/ --backbone resnet50 --objective pfdl --patience 20

        pfdl train photos/ --objective groupdro --contexts inferred --seeds 3

        pfdl train photos/ --devices 4
    """
    with answering_mistakes():
        from pfdl._internal.processes import rank
        from pfdl.data import make_split, read_manifest
        from pfdl.vision.config import TrainingConfig

        parallel = Parallel(jobs, backend, gpus_per_task)
        device = parallel.find_device(device)
        config = TrainingConfig(
            backbone=backbone,
            objective=objective,
            contexts=contexts,
            infer_by=infer_by,
            confirm=confirm,
            objective_settings=parse_settings(objective, setting or []),
            image_size=image_size,
            small_stem=small_stem,
            pretrained=pretrained,
            weights=None if weights is None else str(weights),
            epochs=epochs,
            batch_size=batch_size,
            sampler=sampler,
            optimizer=optimizer,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            schedule=schedule,
            decay_every=decay_every,
            augment=augment,
            label_smoothing=label_smoothing,
            select=select,
            patience=patience,
            precision=precision,
            seed=seed,
        )
        _start_processes(parallel, device, devices, nodes, strategy)  # before images are read, which each does
        is_first = rank() == 0
        base = output or Path("runs") / f"train-{backbone.replace('/', '-')}-{objective}-{seed}"
        given = None if manifest is None else read_manifest(manifest)
        columns = name_columns(path_column, label_column, context_column, split_column, group_column)
        source = open_source(data, superclass, on_bad_image, given, columns=columns, test=test)
        splits = {number: given or make_split(source, ratio=ratio, seed=number) for number in range(seed, seed + seeds)}
        runs = {number: base if seeds == 1 else base / f"seed-{number}" for number in splits}
        trainings = Seeds(splits, runs, source, config, device)
        how = {"num_workers": workers, "loggers": logger}
        if parallel == Parallel():
            trainings.train_in_turn(devices=devices, nodes=nodes, strategy=strategy, **how)
        else:
            images = {"data": data, **columns, "superclass": superclass, "on_bad_image": on_bad_image, "test": test}
            trainings.train_side_by_side(parallel, images=images, **how)
        if is_first:
            print_models(runs, base, export=export)


def _start_processes(parallel: Parallel, device: str, devices: int | None, nodes: int | None, strategy: str) -> None:
    """Start the processes that train together; trainings side by side have one each."""
    from pfdl.vision.launching import choose_devices

    if parallel == Parallel():
        choose_devices(device, devices, nodes, strategy).start()
    elif (processes := choose_devices("cpu", devices, nodes, strategy).processes) > 1:
        raise ValueError(
            f"--jobs, --backend and --gpus-per-task run trainings side by side, each in one process, but there are "
            f"{processes} for one training; leave those options out, or --devices, --nodes, torchrun and srun."
        )
