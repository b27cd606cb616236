"""The command that tries settings of pfdl train and chooses one of them: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pfdl.cli.common import Data, Device, answering_mistakes, answering_stops
from pfdl.cli.images import open_source
from pfdl.cli.workers import Backend, GpusPerTask, Jobs, Parallel
from pfdl.vision.config import DataOptions
from pfdl_lab.cli.common import print_tables
from pfdl_lab.cli.options import FirstSeed, Output

if TYPE_CHECKING:
    import pandas as pd


def sweep(
    data: Data,
    setting: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE,VALUE",
            help="A setting and the values to try; one value fixes it. Names are the options of 'pfdl train' and the "
            "settings of objectives: --set objective=erm,pfdl --set pfdl.weight=0.1,1 --set epochs=20",
        ),
    ],
    select: Annotated[
        str, typer.Option(help="Which validation accuracy chooses: accuracy, worst-class or worst-group.")
    ] = "accuracy",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of every combination, on the same seeds.")] = 3,
    first_seed: FirstSeed = 0,
    test: Annotated[str | None, typer.Option(help="Further images that are the test set.")] = None,
    ratio: Annotated[str, typer.Option(help="In training, images of the dominant context to each other.")] = "5:1",
    output: Output = Path("runs/sweep"),
    device: Device = "auto",
    jobs: Jobs = 1,
    backend: Backend = "joblib",
    gpus_per_task: GpusPerTask = None,
    columns: Annotated[str | None, typer.Option(help="Columns of a table, such as path=file,label=animal.")] = None,
    superclass: Annotated[
        str | None, typer.Option(help="Top folder to use, where classes lie one level deeper.")
    ] = None,
    on_bad_image: Annotated[
        str, typer.Option(help="error: name unusable files and stop; skip: leave them out.")
    ] = "error",
) -> None:
    """Train every combination of declared settings, and choose one by a declared score on validation images.

    Only the chosen combination is tested, so that test images choose nothing. An interrupted sweep resumes when started
    again with the same output folder.

        pfdl sweep photos/ --set objective=erm,pfdl --set learning-rate=0.1,0.01 --set epochs=20

        pfdl sweep photos/ --set objective=balance,groupdro --set contexts=inferred --select worst-group --jobs 4
    """
    with answering_mistakes():
        from dataclasses import asdict

        from pfdl.data import describe_images
        from pfdl_lab.sweep.config import SweepConfig, parse_grid
        from pfdl_lab.sweep.run import run
        from pfdl_lab.sweep.section import describe_choice

        config = SweepConfig(parse_grid(setting), select, seeds, first_seed)
        parallel = Parallel(jobs, backend, gpus_per_task)
        device = parallel.find_device(device)
        source = open_source(data, DataOptions(test, columns, superclass, on_bad_image), None)
        typer.echo(describe_images(source), err=True)
        count = len(config.candidates())
        typer.echo(f"Candidates: {count}; seeds: {seeds}; trainings: {count * seeds}.", err=True)
        with answering_stops(), parallel.execution(device, share_cores=True) as execution:
            results, choice = run(config, source, output, ratio=ratio, execution=execution)
        _print(results, choice.candidate, select)
        typer.echo(describe_choice(asdict(choice)))
        print_tables(output)


def _print(results: pd.DataFrame, chosen: str, select: str) -> None:
    """Print the validation score of every candidate, best first."""
    import pandas as pd

    scores = results[results["score"] == select].groupby("candidate", sort=False)["value"]
    table = pd.DataFrame({"mean": scores.mean(), "error": scores.sem()}).sort_values("mean", ascending=False)
    typer.echo(f"Validation {select} (%), mean ± standard error over the seeds:")
    for name, row in table.iterrows():
        mark = "→" if name == chosen else " "
        error = f" ± {row['error']:.1f}" if row["error"] == row["error"] else ""
        typer.echo(f"{mark} {row['mean']:5.1f}{error}  {name}")
    for name in results.loc[results["score"] == "failed", "candidate"].unique():
        reason = results.loc[(results["candidate"] == name) & (results["score"] == "failed"), "reason"].iloc[0]
        typer.echo(f"  failed: {name}: {reason}")
