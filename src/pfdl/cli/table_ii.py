"""The command that reruns Table II on the paper's backbone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import Device, answering_mistakes, this_command
from pfdl.cli.workers import Backend, GpusPerTask, Jobs, Parallel


def table_ii(
    data: Annotated[
        Path, typer.Argument(metavar="DIR|TABLE", help="Images in contexts, such as the folder Animal of NICO.")
    ],
    rows: Annotated[
        str, typer.Option(help="Keys with commas; an unknown one is answered with the list.")
    ] = "erm,pfdl,level",
    seeds: Annotated[int, typer.Option(min=1, help="Paired repetitions.")] = 12,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    backbone: Annotated[str, typer.Option(help="The network, from scratch; the paper's is resnet50.")] = "resnet50",
    image_size: Annotated[int, typer.Option(min=32, help="Height and width of the images.")] = 96,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images; the paper's are 160.")] = 160,
    decay_every: Annotated[int, typer.Option(min=1, help="Epochs until the learning rate falls to a tenth.")] = 80,
    group_by: Annotated[
        str | None, typer.Option(metavar="CSV:COLUMN", help="Keep images with the same entry on one side of the split.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder.")] = Path("runs/table-ii"),
    device: Device = "auto",
    jobs: Jobs = 1,
    backend: Backend = "joblib",
    gpus_per_task: GpusPerTask = None,
) -> None:
    """Train ERM, PFDL and controls on the paper's backbone and schedule, with paired seeds.

    Every training is tested along the way, at its last epoch, and at the epoch that validation images of the training
    mixture choose. An interrupted run resumes when started again with the same output folder.

        pfdl reproduce table-ii NICO/Animal --jobs 12
    """
    with answering_mistakes():
        from rich.console import Console

        from pfdl.experiments.table_ii.run import TableConfig, run

        config = TableConfig(
            rows=tuple(rows.split(",")),
            seeds=seeds,
            first_seed=first_seed,
            backbone=backbone,
            image_size=image_size,
            epochs=epochs,
            decay_every=decay_every,
        )
        parallel, console = Parallel(jobs, backend, gpus_per_task), Console(stderr=True)
        place = parallel.find_device(device)
        with parallel.workers(place, console) as workers:
            run(
                config,
                data,
                output,
                group_by=group_by,
                device=place,
                workers=workers,
                console=console,
                command=this_command(),
            )
        typer.echo(output / "results.csv")
