"""The command that tries settings of pfdl train and chooses one of them: parses, calls, prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pfdl._internal.settings import read_setting
from pfdl._internal.text import json_or_text, printable_lines
from pfdl.cli.common import Data, Device, open_source, print_understood
from pfdl.cli.options import TypedSettings, split_settings, takes_settings
from pfdl.vision.config import DataOptions, TrainingConfig

if TYPE_CHECKING:
    import pandas as pd
    from optuna.distributions import BaseDistribution


@takes_settings(all_shown=True, without=("seed", "select"))
def sweep(
    data: Data,
    options: DataOptions,
    typed: TypedSettings,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE,VALUE",
            help=(
                "A setting and the values to try; one value fixes it, LOW..HIGH is a range (with"
                " --trials). Names are the settings of 'pfdl train' and of objectives: --set"
                " objective=erm,pfdl --set pfdl.weight=0.1,1. The options of 'pfdl train' take"
                " such values, too."
            ),
        ),
    ] = None,
    select: Annotated[
        str,
        typer.Option(
            help=(
                "Which accuracy chooses: accuracy, worst-class, worst-group or"
                " leave-one-context-out."
            )
        ),
    ] = "accuracy",
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Candidates that Optuna proposes; without it every combination is tried."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Trainings of every candidate, on the same seeds.")
    ] = 3,
    ratio: Annotated[str, typer.Option(help="As in 'pfdl train'.")] = "natural",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="Candidates at a time; -1 for one on each core.")
    ] = 1,
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder.")] = Path(
        "runs/sweep"
    ),
    device: Device = "auto",
) -> None:
    """Try declared settings, and choose one candidate by a declared score on validation images.

    Only the chosen candidate is tested, so that test images choose nothing. An interrupted sweep
    resumes when started again with the same output folder.

        pfdl sweep photos/ --objective erm,pfdl --learning-rate 0.1,0.01 --epochs 20

        pfdl sweep photos/ --learning-rate 0.001..0.1 --set weight-decay=0.00001..0.01 --trials 20
        --jobs 4
    """
    from rich.console import Console

    from pfdl._internal.validation import resolve_device
    from pfdl.data import make_split
    from pfdl.vision import SweepConfig, sweep as run

    config = SweepConfig(parse_space(setting or [], typed), select, seeds, trials)
    device = resolve_device(device)
    source = open_source(data, options, None)
    print_understood(make_split(source, ratio=ratio))
    typer.echo(f"Candidates: {config.number}; seeds: {seeds}.", err=True)
    results, choice = run(
        config, source, output, ratio=ratio, device=device, jobs=jobs, console=Console(stderr=True)
    )
    _print(results, choice, select)
    typer.echo(output / "chosen.json")


def parse_space(
    texts: Sequence[str], typed: Mapping[str, str] = MappingProxyType({})
) -> dict[str, list[Any] | BaseDistribution]:
    """Read the values of each setting, for :class:`pfdl.vision.SweepConfig`.

    Args:
        texts: Each a name, ``=``, and values with commas, or a range.
        typed: Values of further settings, by their names.

    Example:
        >>> parse_space(["learning-rate=0.1,0.01", "objective=pfdl", "pfdl.hidden=64,128"])
        {'learning_rate': [0.1, 0.01], 'objective': ['pfdl'], 'pfdl.hidden': [64, 128]}
    """
    known = {field.name for field in fields(TrainingConfig)} - {
        "seed",
        "select",
        "objective_settings",
        "infer_settings",
    }
    texts = [*(f"{name}={values}" for name, values in typed.items()), *texts]
    space = {name: _read_values(name, text) for name, text in split_settings(texts, known).items()}
    objectives: Any = space.get("objective", [TrainingConfig.objective])
    for name in space:
        part, dot, _ = name.partition(".")
        if dot and part not in "+".join(objectives).split("+"):
            raise ValueError(
                f"--set names {name!r}, but the objective is {' or '.join(objectives)}."
            )
    return space


def _read_values(name: str, text: str) -> list[Any] | BaseDistribution:
    """Return the values of one setting, of its own kind; those of an objective's setting are read
    as JSON.
    """
    from optuna.distributions import FloatDistribution, IntDistribution

    read = json_or_text if "." in name else partial(read_setting, TrainingConfig, name)
    first, dots, last = text.partition("..")
    low, high = (read(first), read(last)) if dots else (None, None)
    # A path may have two dots, too
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return [read(value) for value in text.split(",")]
    if not low < high:
        raise ValueError(
            f"--set {name} is {text!r}; a range is LOW..HIGH with two numbers, the lower first."
        )
    spans_decades = 0 < low <= high / 10
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=spans_decades)
    return FloatDistribution(low, high, log=spans_decades)


def _print(results: pd.DataFrame, choice: Mapping[str, Any], select: str) -> None:
    """Print the validation score of every candidate, best first, and how the chosen one does on
    test images.
    """
    names = {
        "user_attrs_candidate": "candidate",
        "value": select,
        "user_attrs_reason": "failed, because",
    }
    seeds = results.filter(like="intermediate_values")
    table = results.rename(columns=names).assign(error=seeds.sem(axis=1), seeds=seeds.count(axis=1))
    columns = [select, "error", "seeds", "candidate", "failed, because"]
    shown = table.sort_values(select, ascending=False, kind="stable").filter(columns)
    typer.echo("On validation images, the mean over the seeds and its standard error (%):")
    typer.echo(
        printable_lines(shown.to_string(index=False, float_format="{:.1f}".format, na_rep=""))
    )
    typer.echo(f"Chosen: {choice['candidate']}.")
    for test, (mean, error) in choice["test"].items():
        spread = f" ± {error:.1f}" if len(seeds.columns) > 1 else ""
        typer.echo(f"Accuracy on test images, {printable_lines(test)}: {mean:.1f}{spread} %.")
