"""Single trainings in the report: how they ended on validation and test images, by ratio and
context, their curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pandas as pd

from pfdl._internal.files import read_json
from pfdl.runs import MANIFEST, WHY_CONTEXTS, Run, name_folders
from pfdl.vision.evaluation import OWN, Evaluation, read_evaluations
from pfdl_lab.report.blocks import (
    Block,
    Cell,
    Heading,
    Missing,
    Number,
    Plot,
    Section,
    SideBySide,
    Table,
    TableLine,
    Text,
)
from pfdl_lab.report.lines import Series, plot_lines
from pfdl_lab.report.reading import read_metrics

KIND = "training"
TITLE = "Trainings"
# Named of each run; of other settings those that differ
_ALWAYS = (
    "backbone",
    "objective",
    "seed",
)
# Column of metrics.csv: title, axis, factor, decimals.
CURVES = {
    "val_accuracy": ("Validation accuracy", "accuracy, %", 100.0, 1),
    "train_accuracy": ("Training accuracy", "accuracy, %", 100.0, 1),
    "train_loss": ("Training objective", "loss with penalties", 1.0, 3),
    "L_g": ("L_g, the loss of the network g", "L_g", 1.0, 5),
    "L_decorr": ("L_decorr, the penalty on the correlated part", "L_decorr", 1.0, 6),
    "R2": ("R² of g: how much of each feature the others predict", "R²", 1.0, 3),
}


def build(runs: Sequence[Run], problems: list[str]) -> Section:
    """Build one section for all trainings, so that they can be compared."""
    named = dict(zip(name_folders([run.folder for run in runs]), runs, strict=True))
    curves = {name: read_metrics(run, problems) for name, run in named.items()}
    evaluations = {name: read_evaluations(run.folder, problems) for name, run in named.items()}
    tested = {name: found[OWN] for name, found in evaluations.items() if OWN in found}
    blocks: list[Block] = [
        Text(
            "Each training keeps its best weights on validation images of the training"
            " distribution; test images are looked at once, at the end. One seed each: differences"
            " between single trainings may be chance."
        ),
        _overview(named, curves, tested),
        *_inferred(named, problems),
    ]
    for same_data in _by_data(evaluations):
        blocks += _tested(same_data)
    logged = {name: curve for name, curve in curves.items() if curve is not None and len(curve)}
    if logged:
        plots = list(chain.from_iterable(_curves(column, logged) for column in CURVES))
        blocks += [Heading("Training curves"), SideBySide(plots)]
    return Section(TITLE, blocks)


def _curves(column: str, logged: Mapping[str, pd.DataFrame]) -> list[Plot]:
    """Draw what the epochs of each training logged of one thing."""
    title, axis, factor, digits = CURVES[column]
    lines = []
    for number, (name, frame) in enumerate(logged.items()):
        known = frame[["epoch", column]].dropna() if column in frame.columns else frame.iloc[:0]
        if len(known):
            style = "lines" if len(known) > 20 else "lines+markers"
            y = (factor * known[column]).tolist()
            lines.append(Series(name, (known["epoch"] + 1).tolist(), y, style=style, colour=number))
    return plot_lines(title, "Epoch by epoch.", "epoch", axis, lines, digits)


def _inferred(runs: Mapping[str, Run], problems: list[str]) -> list[Block]:
    """Say for each run with inferred contexts what was tried, what was found, and why it is
    believed.
    """
    found: list[Block] = []
    for name, run in runs.items():
        path = run.folder / WHY_CONTEXTS
        try:
            found.append(Text(f"Contexts of {name}. {read_json(path)['sentence']}"))
        except FileNotFoundError:
            continue
        except (KeyError, OSError, TypeError, ValueError) as error:
            problems.append(f"{path} was left out: {error!r}.")
    return [Heading("Inferred contexts"), *found] if found else []


def _by_data(evaluations: Mapping[str, Mapping[str, Evaluation]]) -> list[dict[str, Evaluation]]:
    """Put evaluations on the same images together: figures on different images must not stand in
    one table.
    """
    found: dict[str, dict[str, Evaluation]] = {}
    for run, named in evaluations.items():
        for one in named.values():
            found.setdefault(one.data_sha256, {})[run] = one
    return list(found.values())


def _tested(evaluations: Mapping[str, Evaluation]) -> list[Block]:
    """Show all evaluations on the same images."""
    first = next(iter(evaluations.values()))
    names = ", ".join(dict.fromkeys(one.name for one in evaluations.values()))
    one_of, all_of = ("group", "groups") if first.by_context else ("class", "classes")
    columns: dict[str, list[Cell]] = {
        "all images": [Number(100 * one.overall) for one in evaluations.values()],
        f"worst {one_of}": [Number(100 * one.worst_group.accuracy) for one in evaluations.values()],
        f"mean over {all_of}": [
            Number(100 * one.average_over_groups) for one in evaluations.values()
        ],
        f"training mixture of {all_of}": [_in_mixture(one) for one in evaluations.values()],
        "calibration error": [
            Number(one.calibration_error, digits=3) for one in evaluations.values()
        ],
    }
    columns = {name: cells for name, cells in columns.items() if not _all_missing(cells)}
    rows = [
        TableLine(run, cells)
        for run, cells in zip(evaluations, zip(*columns.values(), strict=True), strict=True)
    ]
    caption = f"Accuracies in percent on {first.images} images ({names})"
    table = Table(caption, "run", list(columns), rows)
    blocks: list[Block] = [
        Heading(f"Tested on {names}: {first.images} images"),
        table,
        *_ratio_plot(evaluations),
    ]
    tables = [
        _group_table({run: one.by_context for run, one in evaluations.items()}, "context"),
        _group_table({run: one.by_label for run, one in evaluations.items()}, "class"),
    ]
    return [*blocks, *(table for table in tables if table is not None)]


def _in_mixture(one: Evaluation) -> Cell:
    return _percent(one.average_in_training_mixture, "some groups are not among these images")


def _percent(share: float | None, why_not: str) -> Cell:
    return Missing(why_not) if share is None else Number(100 * share)


def _all_missing(cells: Sequence[Cell]) -> bool:
    return all(isinstance(cell, Missing) for cell in cells)


def _overview(
    runs: Mapping[str, Run],
    curves: Mapping[str, pd.DataFrame | None],
    tested: Mapping[str, Evaluation],
) -> Table:
    configs = {name: _training(run) for name, run in runs.items()}
    values: dict[str, set[str]] = {key: set() for key in _ALWAYS}
    for key, value in (one for config in configs.values() for one in config.items()):
        values.setdefault(key, set()).add(str(value))
    said = [
        key
        for key in values
        if key in _ALWAYS or (len(values[key]) > 1 and key not in ("epochs", "patience"))
    ]
    lines = []
    for name, config in configs.items():
        curve = curves[name]
        epochs = 0 if curve is None else len(curve)
        may_stop = " at most" if config.get("patience") is not None else ""
        cells: list[Cell] = [str(config.get(key, "?")) for key in said]
        cells.append(f"{epochs} of{may_stop} {config.get('epochs', '?')}")
        cells.append(_best(curve))
        own = tested.get(name)
        shares = (None, None) if own is None else (own.overall, own.worst_group.accuracy)
        cells += [_percent(one, "not tested") for one in shares]
        lines.append(TableLine(name, tuple(cells)))
    worst = (
        " or ".join(sorted({"group" if one.by_context else "class" for one in tested.values()}))
        or "group"
    )
    names = [key.replace("_", " ") for key in said]
    columns = [*names, "epochs", "best validation (%)", "test (%)", f"worst {worst}, test (%)"]
    note = (
        "Test: the test images of the run's own split, looked at once. Runs with other splits have"
        " other test images."
    )
    return Table("Trainings", "run", columns, lines, note=note)


def _training(run: Run) -> Mapping[str, Any]:
    """Return how a run was trained, and at which dominant ratio."""
    given = run.settings.get("training")
    config = dict(given) if isinstance(given, Mapping) else {}
    with suppress(OSError, LookupError, TypeError, ValueError):
        config["ratio"] = (
            read_json((run.folder / MANIFEST).with_suffix(".json"))["ratio"] or "natural"
        )
    return config


def _best(curve: pd.DataFrame | None) -> Cell:
    if curve is None or "val_accuracy" not in curve.columns or not len(curve):
        return Missing("no epoch finished yet" if curve is None else "no validation images")
    return Number(100 * float(curve["val_accuracy"].max()))


def _ratio_plot(evaluations: Mapping[str, Evaluation]) -> list[Plot]:
    lines = []
    for number, (run, one) in enumerate(evaluations.items()):
        if len(one.by_ratio) > 1:
            shares = [100 * share for share in one.by_ratio.values()]
            lines.append(Series(run, list(one.by_ratio), shares, colour=number))
    summary = "From contexts that are reversed (left) to contexts as in training (right)."
    title = "Accuracy against the dominant ratio of the test set"
    return plot_lines(title, summary, "dominant ratio", "accuracy, %", lines)


def _group_table(shares: Mapping[str, Mapping[str, float]], what: str) -> Table | None:
    columns = list(dict.fromkeys(chain.from_iterable(shares.values())))
    if not columns:
        return None
    rows = []
    for run, one in shares.items():
        cells = [_percent(one.get(name), "not tested") for name in columns]
        rows.append(TableLine(run, tuple(cells)))
    return Table(f"Accuracy in percent by {what}", "run", columns, rows)
