"""The commands that rerun the paper's tables: reproduce mmads, colored-mnist, contexts, table-ii."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli.common import Device, add_command, answering_mistakes, answering_stops
from pfdl.cli.workers import PANEL, Backend, GpusPerTask, Jobs, Parallel
from pfdl_lab.cli.common import print_tables
from pfdl_lab.cli.options import FirstSeed, GroupBy, Mnist, OnBadImage, Output

Quick = Annotated[bool, typer.Option("--quick", help="A small version: minutes on two cores.")]


def mmads(
    output: Output = Path("runs/mmads"),
    quick: Quick = False,
    jobs: Jobs = -1,
    backend: Backend = "joblib",
) -> None:
    """Rerun Table I: coefficients and stability on MMADS, in the paper's setting and two more.

    An interrupted run resumes when started again with the same output folder.
    """
    with answering_mistakes():
        from pfdl_lab.mmads.run import FULL, QUICK, run

        with Parallel(jobs, backend).execution("cpu") as execution:
            run(QUICK if quick else FULL, output, execution)
        print_tables(output)


def colored_mnist(
    mnist: Mnist = None,
    download: Annotated[bool, typer.Option("--download", help="Let torchvision fetch MNIST into that folder.")] = False,
    output: Output = Path("runs/colored-mnist"),
    quick: Quick = False,
    rows: Annotated[
        str | None, typer.Option(help="Keys of rows, with commas; all but those with indexed g where left out.")
    ] = None,
    restarts: Annotated[int | None, typer.Option(min=1, help="Restarts per method; 10, or 3 if quick.")] = None,
    device: Device = "auto",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", help="Methods at a time; by default all cores, or 4 on a GPU.", rich_help_panel=PANEL
        ),
    ] = None,
    backend: Backend = "joblib",
    gpus_per_task: GpusPerTask = None,
) -> None:
    """Run the table of Colored-MNIST: ERM, IRM, IRM+PFDL and more, beside the published figures.

    An interrupted run resumes when started again with the same output folder.
    """
    with answering_mistakes():
        from rich.console import Console

        from pfdl.data.digits import find_digits
        from pfdl_lab.colored_mnist import run as experiment

        console = Console(stderr=True)
        source = find_digits(mnist, download=download)
        config = experiment.QUICK if quick else experiment.FULL
        config = replace(config, restarts=restarts or config.restarts, rows=_keys(rows) if rows else config.rows)
        place = Parallel(backend=backend, gpus_per_task=gpus_per_task).find_device(device)
        console.print(f"Digits: {source.name}. Computing on {place}.")
        if place == "cpu" and not quick and source.is_mnist:
            console.print("The published protocol takes hours without a GPU; --quick takes minutes.")
        parallel = Parallel(jobs or (-1 if place == "cpu" else 4), backend, gpus_per_task)
        with parallel.execution(place) as execution:
            experiment.run(config, output, folder=None if mnist is None else str(mnist), execution=execution)
        print_tables(output)


def contexts(
    data: Annotated[
        str | None,
        typer.Option(help="NICO, or any images in contexts: a folder or a table. Without it: the generated shapes."),
    ] = None,
    superclass: Annotated[str | None, typer.Option(help="Top folder to use; Animal for the paper's table.")] = None,
    on_bad_image: OnBadImage = "error",
    output: Output = Path("runs/contexts"),
    quick: Quick = False,
    group_by: GroupBy = None,
    rows: Annotated[
        str | None, typer.Option(help="Only these of cn,cn-bn,cnbb,resnet,dwr,stablenet,pfdl,balance, with commas.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Network of all rows but CN's; resnet50, or resnet18 if quick.")
    ] = None,
    stock_stem: Annotated[
        bool, typer.Option("--stock-stem", help="The ResNet's own stem instead of one for small images.")
    ] = False,
    image_size: Annotated[
        int | None, typer.Option(min=32, help="Height and width for all networks; 64, or 32 if quick.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="Paired repetitions; 5, or 2 if quick.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="160, or 3 if quick.")] = None,
    decay_every: Annotated[int | None, typer.Option(min=1, help="Epochs per learning rate; 80, or 2 if quick.")] = None,
    precision: Annotated[str | None, typer.Option(help="32, or bf16 for mixed precision.")] = None,
    device: Device = "auto",
    jobs: Jobs = 1,
    backend: Backend = "joblib",
    gpus_per_task: GpusPerTask = None,
) -> None:
    """Rerun Table II: CN, CN+BN, CNBB, ResNet, DWR, StableNet and PFDL at seven dominant ratios.

    The paper's protocol on NICO: pfdl reproduce contexts --data NICO --superclass Animal --on-bad-image skip

    An interrupted run resumes, in the middle of a training too, when started again with the same output folder.
    """
    given = {
        "rows": _keys(rows) if rows else None,
        "resnet": backbone,
        "small_stem": False if stock_stem else None,
        "image_size": image_size,
        "seeds": seeds,
        "epochs": epochs,
        "decay_every": decay_every,
        "precision": precision,
    }
    with answering_mistakes():
        from pfdl_lab.contexts import run as experiment

        changes = {name: value for name, value in given.items() if value is not None}
        config = replace(experiment.QUICK if quick else experiment.FULL, **changes)  # type: ignore[arg-type]
        images = experiment.Images(data, superclass, on_bad_image, group_by)
        with answering_stops(), Parallel(jobs, backend, gpus_per_task).execution(device) as execution:
            experiment.run(config, images, output, execution)
        print_tables(output)


def table_ii(
    data: Annotated[
        Path, typer.Argument(metavar="DIR|TABLE", help="Images in contexts, such as NICO's folder Animal; or shapes.")
    ],
    rows: Annotated[
        str, typer.Option(help="Keys with commas; an unknown one is answered with the list.")
    ] = "erm,pfdl,level",
    seeds: Annotated[int, typer.Option(min=1, help="Paired repetitions.")] = 12,
    first_seed: FirstSeed = 0,
    backbone: Annotated[str, typer.Option(help="The network, from scratch; the paper's is resnet50.")] = "resnet50",
    image_size: Annotated[int, typer.Option(min=32, help="Height and width of the images.")] = 96,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images; the paper's are 160.")] = 160,
    decay_every: Annotated[int, typer.Option(min=1, help="Epochs until the learning rate falls to a tenth.")] = 80,
    group_by: GroupBy = None,
    output: Output = Path("runs/table-ii"),
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
        from pfdl_lab.table_ii.run import TableConfig, run

        config = TableConfig(
            rows=_keys(rows),
            seeds=seeds,
            first_seed=first_seed,
            backbone=backbone,
            image_size=image_size,
            epochs=epochs,
            decay_every=decay_every,
        )
        with Parallel(jobs, backend, gpus_per_task).execution(device) as execution:
            run(config, data, output, group_by=group_by, execution=execution)
        print_tables(output)


def _keys(rows: str) -> tuple[str, ...]:
    return tuple(rows.split(","))


app = typer.Typer(help="Rerun a table of the paper, beside the paper's own figures.", no_args_is_help=True)
for _name, _command in {
    "mmads": mmads,
    "colored-mnist": colored_mnist,
    "contexts": contexts,
    "table-ii": table_ii,
}.items():
    add_command(app, _name, _command)
