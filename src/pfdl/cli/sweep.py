"""The command that tries settings of pfdl train and chooses one of them: parses, calls, prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pfdl._internal.settings import read_setting
from pfdl._internal.text import did_you_mean, json_or_text
from pfdl.cli.common import Data, Device, answering_stops, this_command
from pfdl.cli.images import open_source
from pfdl.cli.options import takes_settings
from pfdl.vision.config import DataOptions

if TYPE_CHECKING:
    import pandas as pd

    from pfdl.vision.sweep import Choice, Range

RESERVED = {"seed": "--seeds", "select": "--select", "objective_settings": "PART.NAME=VALUES, such as pfdl.weight=1,10"}
"""Settings that a sweep does not take by ``--set``, and what to use instead."""


@takes_settings(all_shown=True)
def sweep(
    data: Data,
    options: DataOptions,
    setting: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE,VALUE",
            help="A setting and the values to try; one value fixes it, LOW..HIGH is a range (with --trials). Names are "
            "the settings of 'pfdl train' and of objectives: --set objective=erm,pfdl --set pfdl.weight=0.1,1",
        ),
    ],
    select: Annotated[
        str,
        typer.Option(help="Which accuracy chooses: accuracy, worst-class, worst-group or leave-one-context-out."),
    ] = "accuracy",
    trials: Annotated[
        int | None, typer.Option(min=1, help="Candidates that Optuna proposes; without it every combination is tried.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of every candidate, on the same seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    ratio: Annotated[str, typer.Option(help="As in 'pfdl train'.")] = "natural",
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Candidates at a time; -1 for one on each core.")] = 1,
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder.")] = Path("runs/sweep"),
    device: Device = "auto",
) -> None:
    """Try declared settings, and choose one candidate by a declared score on validation images.

    Only the chosen candidate is tested, so that test images choose nothing. An interrupted sweep resumes when started
    again with the same output folder.

        pfdl sweep photos/ --set objective=erm,pfdl --set learning-rate=0.1,0.01 --set epochs=20

        pfdl sweep photos/ --set learning-rate=0.001..0.1 --set weight-decay=0.00001..0.01 --trials 20 --jobs 4
    """
    from rich.console import Console

    from pfdl._internal.devices import resolve_device
    from pfdl.data import make_split
    from pfdl.vision.sweep import LEAVE_OUT, SweepConfig
    from pfdl.vision.sweep import sweep as run

    config = SweepConfig(parse_space(setting), select, seeds, first_seed, trials)
    device = resolve_device(device)
    source = open_source(data, options, None)
    typer.echo(make_split(source, ratio=ratio, seed=first_seed).describe(), err=True)
    each = " for every context that is left out" if select == LEAVE_OUT else ""
    number = config.number * seeds
    typer.echo(f"Candidates: {config.number}; seeds: {seeds}; trainings: {number} at most{each}.", err=True)
    with answering_stops():
        results, choice = run(
            config,
            source,
            output,
            ratio=ratio,
            device=device,
            jobs=jobs,
            console=Console(stderr=True),
            command=this_command(),
        )
    _print(results, choice)
    typer.echo(output / "chosen.json")


def parse_space(texts: Sequence[str]) -> dict[str, list[Any] | Range]:
    """Read the values of each setting, for :class:`pfdl.vision.sweep.SweepConfig`.

    A text is a name, ``=``, and values with commas or a range. Values of an objective's setting may be JSON lists.

    Example:
        >>> parse_space(["learning-rate=0.001..0.1", "objective=pfdl", "pfdl.hidden=[64,64],128"])
        {'learning_rate': Range(low=0.001, high=0.1), 'objective': ['pfdl'], 'pfdl.hidden': [[64, 64], 128]}
    """
    from pfdl.vision.config import TrainingConfig

    raw: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name if "." in name else name.replace("-", "_")
        if not equals or not values:
            raise ValueError(f"--set is {text!r}; give NAME=VALUE,VALUE, such as learning-rate=0.1,0.01.")
        if name in raw:
            raise ValueError(f"--set names {name} twice; give all its values at once, with commas.")
        raw[name] = values
    objectives = raw.get("objective", TrainingConfig.objective)
    tried = objectives.replace("+", ",").split(",")
    known = {one.name for one in fields(TrainingConfig)} - set(RESERVED)
    for name in raw:
        part, dot, _ = name.partition(".")
        if name in RESERVED:
            raise ValueError(f"--set names {name}; for that use {RESERVED[name]}.")
        if dot and part not in tried:
            raise ValueError(f"--set names {name!r}, but the objective is {objectives}.")
        if not dot and name not in known:
            hint = did_you_mean(name, known) or "."
            raise ValueError(f"--set names {name!r}; choose from {', '.join(sorted(known))}{hint}")
    return {name: _read_values(name, values) for name, values in raw.items()}


def _read_values(name: str, text: str) -> list[Any] | Range:
    """Return the values of one setting, of its own kind; those of an objective's setting are read as JSON."""
    from pfdl.vision.config import TrainingConfig
    from pfdl.vision.sweep import Range

    read = json_or_text if "." in name else partial(read_setting, TrainingConfig, name)
    low, dots, high = text.partition("..")
    ends = [read(low), read(high)] if dots else []
    if ends and all(isinstance(end, (int, float)) for end in ends):  # a path may have two dots, too
        if not ends[0] < ends[1]:
            raise ValueError(f"--set {name} is {text!r}; a range is LOW..HIGH with two numbers, the lower first.")
        return Range(*ends)
    try:
        values = json.loads(f"[{text}]") if "." in name else []  # commas inside brackets do not separate
    except ValueError:
        values = []
    values = values or [read(value) for value in text.split(",")]
    if len({json.dumps(value) for value in values}) < len(values):
        raise ValueError(f"--set gives a value of {name} twice: {text}.")
    return values


def _print(results: pd.DataFrame, choice: Choice) -> None:
    """Print the validation score of every candidate, best first, and how the chosen one does on test images."""
    from pfdl.vision.sweep import FAILED

    scores = results[results["score"] == choice.select].groupby("candidate", sort=False)["value"]
    table = scores.agg(["mean", "sem", "count"]).sort_values("mean", ascending=False)
    typer.echo(f"Validation {choice.select} (%), mean ± standard error over the seeds:")
    for name, row in table.iterrows():
        mark = "→" if name == choice.candidate else " "
        error = f" ± {row['sem']:.1f}" if row["sem"] == row["sem"] else ""
        stopped = "" if row["count"] == table["count"].max() else f"  (stopped after {row['count']:.0f} seeds)"
        typer.echo(f"{mark} {row['mean']:5.1f}{error}  {name}{stopped}")
    for _, line in results[results["score"] == FAILED].iterrows():
        typer.echo(f"  failed: {line['candidate']}: {line['reason']}")
    tests = ", ".join(
        f"{test} {mean:.1f}{'' if error is None else f' ± {error:.1f}'} %"
        for test, (mean, error) in choice.test.items()
    )
    typer.echo(f"Accuracy of the chosen candidate on test images: {tests}." if tests else "There are no test images.")
