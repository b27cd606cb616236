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
from pfdl.cli.common import Data, Device, answering_stops
from pfdl.cli.images import open_source
from pfdl.cli.options import takes_settings
from pfdl.cli.workers import Backend, GpusPerTask, Jobs, Parallel
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
    prune: Annotated[
        bool, typer.Option(help="Stop candidates that are behind beyond chance on the first seeds.")
    ] = True,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of every candidate, on the same seeds.")] = 3,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    ratio: Annotated[str, typer.Option(help="As in 'pfdl train'.")] = "natural",
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder.")] = Path("runs/sweep"),
    device: Device = "auto",
    jobs: Jobs = 1,
    backend: Backend = "joblib",
    gpus_per_task: GpusPerTask = None,
) -> None:
    """Try declared settings, and choose one candidate by a declared score on validation images.

    Only the chosen candidate is tested, so that test images choose nothing. An interrupted sweep resumes when started
    again with the same output folder; machines that share the folder may work on it together.

        pfdl sweep photos/ --set objective=erm,pfdl --set learning-rate=0.1,0.01 --set epochs=20

        pfdl sweep photos/ --set learning-rate=0.001..0.1 --set weight-decay=0.00001..0.01 --trials 20 --jobs 4
    """
    from pfdl.data import describe_images
    from pfdl.vision.sweep import LEAVE_OUT, SweepConfig
    from pfdl.vision.sweep import sweep as run

    config = SweepConfig(parse_space(setting), select, seeds, first_seed, trials, prune)
    parallel = Parallel(jobs, backend, gpus_per_task)
    device = parallel.find_device(device)
    source = open_source(data, options, None)
    typer.echo(describe_images(source), err=True)
    each = " for every context that is left out" if select == LEAVE_OUT else ""
    number = config.number * seeds
    typer.echo(f"Candidates: {config.number}; seeds: {seeds}; trainings: {number} at most{each}.", err=True)
    execution = parallel.execution(device, share_cores=True)
    with answering_stops():
        results, choice = run(config, source, output, ratio=ratio, execution=execution)
    _print(results, choice)
    typer.echo(output / "chosen.json")


def parse_space(texts: Sequence[str]) -> dict[str, list[Any] | Range]:
    """Read ``["objective=erm,pfdl", "learning-rate=0.001..0.1"]``.

    Args:
        texts: What a user typed: a name, ``=``, and values with commas or a range. Values of an objective's setting may
            be JSON lists.

    Returns:
        The values of each setting, for :class:`pfdl.vision.sweep.SweepConfig`.

    Raises:
        ValueError: If a name or a value cannot be used.

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
    known = {one.name for one in fields(TrainingConfig)}
    objectives = raw.get("objective", TrainingConfig.objective).split(",")
    space: dict[str, list[Any] | Range] = {}
    for name, values in raw.items():
        if "." in name:
            _check_part(name, objectives)
        elif name in RESERVED:
            raise ValueError(f"--set names {name}; for that use {RESERVED[name]}.")
        elif name not in known:
            names = ", ".join(sorted(known - set(RESERVED)))
            hint = did_you_mean(name, known) or "."
            raise ValueError(
                f"--set names {name!r}; choose from {names}, or a setting of an objective as PART.NAME{hint}"
            )
        space[name] = _values(name, values)
    return space


def _values(name: str, text: str) -> list[Any] | Range:
    """Return the values of one setting, of its own kind; those of an objective's setting are read as JSON."""
    from pfdl.vision.config import TrainingConfig
    from pfdl.vision.sweep import Range

    read = json_or_text if "." in name else partial(read_setting, TrainingConfig, name)
    low, dots, high = text.partition("..")
    ends = [read(low), read(high)] if dots else []
    if ends and all(_is_number(end) for end in ends):  # a path may have two dots, too
        if not ends[0] < ends[1]:
            raise ValueError(f"--set {name} is {text!r}; a range is LOW..HIGH with two numbers, the lower first.")
        return Range(*ends)
    values = _split(text) if "." in name else [read(value) for value in text.split(",")]
    if len({json.dumps(value) for value in values}) < len(values):
        raise ValueError(f"--set gives a value of {name} twice: {text}.")
    return values


def _check_part(name: str, objectives: Sequence[str]) -> None:
    from pfdl.objectives import list_objectives

    known = {one.name: [setting.partition("=")[0] for setting in one.settings] for one in list_objectives()}
    part, _, setting = name.partition(".")
    tried = [one for objective in objectives for one in objective.split("+")]
    if part not in tried:
        raise ValueError(f"--set names {name}, but no objective of the sweep ({', '.join(objectives)}) has {part!r}.")
    if part in known and setting not in known[part]:
        raise ValueError(f"--set names {name}; {part!r} has {', '.join(known[part]) or 'no settings'}.")


def _split(text: str) -> list[Any]:
    """Split values at commas, those inside brackets excepted."""
    try:
        values: list[Any] = json.loads(f"[{text}]")
    except ValueError:
        values = [json_or_text(value) for value in text.split(",")]
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
