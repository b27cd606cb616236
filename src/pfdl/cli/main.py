"""The command line: parses, calls, prints. No mathematics here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pfdl.cli import diagnose as cli_diagnose
from pfdl.cli import export as cli_export
from pfdl.cli import images as cli_images
from pfdl.cli import listing as cli_listing
from pfdl.cli import report as cli_report
from pfdl.cli import split as cli_split
from pfdl.cli import study as cli_study
from pfdl.cli import table_ii
from pfdl.cli import train as cli_train
from pfdl.cli.common import answering_mistakes

app = typer.Typer(
    name="pfdl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reproduce = typer.Typer(help="Rerun a table of the paper, beside the paper's own figures.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
cli_train.register(app)
cli_images.register(app)
cli_export.register(app)
cli_listing.register(app)
cli_split.register(app)
cli_report.register(app)
cli_diagnose.register(app)
cli_study.register(app)
reproduce.command("table-ii")(table_ii.table_ii)


def _show_version(wanted: bool) -> None:
    if wanted:
        from pfdl import __version__

        typer.echo(f"pfdl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Partial Feature Decorrelation Learning: train models that hold up where the data shifts."""


@reproduce.command("mmads")
def reproduce_mmads(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results.csv, table.md and the figures.")
    ] = Path("runs/mmads"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Two cells, three seeds: about two minutes on two cores.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1 for all cores.")] = -1,
    backend: Annotated[str, typer.Option(help="joblib: this machine; ray: the cluster RAY_ADDRESS names.")] = "joblib",
) -> None:
    """Table I: coefficients and stability on MMADS, in the paper's setting and two more.

    An interrupted run resumes when started again with the same output folder.
    """
    from rich.console import Console

    from pfdl.experiments.mmads import run as mmads
    from pfdl.experiments.mmads.report import write_report

    console = Console(stderr=True)
    plan = mmads.QUICK if quick else mmads.FULL
    command = f"pfdl reproduce mmads{' --quick' if quick else ''}"
    with answering_mistakes():
        results = mmads.run(plan, output, n_jobs=jobs, backend=backend, console=console, command=command)
        for path in write_report(results, output, command=command):
            typer.echo(path)


@reproduce.command("colored-mnist")
def reproduce_colored_mnist(
    mnist: Annotated[
        Path | None,
        typer.Option(envvar="PFDL_MNIST", help="Folder of the four MNIST files. Without it: scikit-learn's digits."),
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Let torchvision fetch MNIST into that folder.")] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results.csv, table.md and the figures.")
    ] = Path("runs/colored-mnist"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rows, narrower networks, 3 restarts: minutes on two cores.")
    ] = False,
    restarts: Annotated[int | None, typer.Option(min=1, help="Restarts per method; 10, or 3 if quick.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")] = "auto",
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Methods at a time; by default all cores, or 4 on a GPU.")
    ] = None,
) -> None:
    """The table of Colored-MNIST: ERM, IRM, IRM+PFDL and more, beside the published figures.

    An interrupted run resumes when started again with the same output folder.
    """
    from rich.console import Console

    from pfdl._internal.devices import resolve_device
    from pfdl.data import ColoredMNIST
    from pfdl.data.digits import find_digits
    from pfdl.experiments.colored_mnist import run as colored_mnist
    from pfdl.experiments.colored_mnist.report import write_report

    console = Console(stderr=True)
    flags = "".join(f" {flag}" for flag, given in (("--mnist DIR", mnist), ("--quick", quick)) if given)
    command = f"pfdl reproduce colored-mnist{flags}"
    with answering_mistakes():
        source = find_digits(mnist, download=download)
        scale = colored_mnist.scale_of(quick=quick, restarts=restarts)
        place = resolve_device(device)
        console.print(f"Digits: {source.name}. Computing on {place}.")
        if place == "cpu" and not quick and source.is_mnist:
            console.print("The published protocol takes hours without a GPU; --quick takes minutes.")
        results = colored_mnist.run(
            scale,
            output,
            folder=None if mnist is None else str(mnist),
            device=place,
            n_jobs=jobs or (-1 if place == "cpu" else 4),
            console=console,
            command=command,
        )
        data = ColoredMNIST(source, seed=scale.seed, max_train=scale.max_train)
        for path in write_report(results, data, scale, output, command=command):
            typer.echo(path)


@reproduce.command("contexts")
def reproduce_contexts(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of NICO, or any class/context/image. Without it: the built-in drawn data set."),
    ] = None,
    superclass: Annotated[str | None, typer.Option(help="Top folder to use; Animal for the paper's table.")] = None,
    on_bad_image: Annotated[str, typer.Option(help="error: name unusable files and stop; skip: leave them out.")] = (
        "error"
    ),
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for results.csv, table.md, accuracy.png and the runs.")
    ] = Path("runs/contexts"),
    quick: Annotated[
        bool, typer.Option("--quick", help="ResNet-18, 32×32 pixels, 3 epochs, 2 seeds: minutes on two cores.")
    ] = False,
    group_by: Annotated[
        str | None, typer.Option(metavar="CSV:COLUMN", help="Keep images with the same entry on one side of the split.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Only these of cn,cn-bn,cnbb,resnet,dwr,stablenet,pfdl,balance, with commas.")
    ] = None,
    resnet: Annotated[str | None, typer.Option(help="Another ResNet than resnet50 (resnet18 if quick).")] = None,
    stock_stem: Annotated[
        bool, typer.Option("--stock-stem", help="The ResNet's own stem instead of one for small images.")
    ] = False,
    image_size: Annotated[int | None, typer.Option(min=32, help="Of all networks; 64, or 32 if quick.")] = None,
    seeds: Annotated[int | None, typer.Option(min=2, help="Paired repetitions; 5, or 2 if quick.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="160, or 3 if quick.")] = None,
    decay_every: Annotated[int | None, typer.Option(min=1, help="Epochs per learning rate; 80, or 2 if quick.")] = None,
    precision: Annotated[str, typer.Option(help="32, or bf16 for mixed precision.")] = "32",
    device: Annotated[str, typer.Option(help="cpu or cuda; auto takes a GPU where there is one.")] = "auto",
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Trainings at a time; on a large GPU 4 or more.")] = 1,
) -> None:
    """Table II: CN, CN+BN, CNBB, ResNet, DWR, StableNet and PFDL at seven dominant ratios.

    The paper's protocol on NICO: pfdl reproduce contexts --data NICO --superclass Animal --on-bad-image skip

    An interrupted run resumes, in the middle of a training too, when started again with the same
    output folder.
    """
    from dataclasses import replace

    from rich.console import Console

    changes = {
        "rows": None if rows is None else tuple(rows.split(",")),
        "resnet": resnet,
        "small_stem": False if stock_stem else None,
        "image_size": image_size,
        "seeds": seeds,
        "epochs": epochs,
        "decay_every": decay_every,
        "precision": precision,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    with answering_mistakes():
        from pfdl._internal.devices import resolve_device
        from pfdl.experiments.contexts import run as contexts
        from pfdl.experiments.contexts.report import write_report
        from pfdl.vision.training import TrainingStoppedError

        images = contexts.Images(None if data is None else str(data), superclass, on_bad_image, group_by)
        scale = replace(contexts.QUICK if quick else contexts.FULL, **given)  # type: ignore[arg-type]
        place = resolve_device(device)
        switches = {"--data DIR": data, "--group-by CSV:COLUMN": group_by, "--quick": quick, "--stock-stem": stock_stem}
        flags = "".join(f" {flag}" for flag, on in switches.items() if on) + (f" --rows {rows}" if rows else "")
        values = {name: value for name, value in given.items() if name not in ("rows", "small_stem") and value != "32"}
        flags += "".join(f" --{name.replace('_', '-')} {value}" for name, value in values.items())
        command = f"pfdl reproduce contexts{flags}"
        console = Console(stderr=True)
        try:
            results = contexts.run(scale, images, output, device=place, n_jobs=jobs, console=console, command=command)
        except TrainingStoppedError as stopped:
            typer.echo(stopped, err=True)
            raise typer.Exit(130) from None
        for path in write_report(results, scale, images, output, command=command):
            typer.echo(path)


def main() -> None:
    """Run the command line; a user's mistake is answered with a sentence, not a traceback."""
    app()


if __name__ == "__main__":
    main()
