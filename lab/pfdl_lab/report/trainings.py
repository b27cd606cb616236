"""Single trainings in the report: how they ended on validation and test images, by ratio and
context, their curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

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
    Table,
    TableLine,
    Text,
)
from pfdl_lab.report.lines import plot_lines
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
    plots = list(chain.from_iterable(_curves(column, curves) for column in CURVES))
    blocks += [Heading("Training curves"), *plots] if plots else []
    return Section(TITLE, blocks)


def _curves(column: str, curves: Mapping[str, pd.DataFrame | None]) -> list[Plot]:
    """Draw what the epochs of each training logged of one thing."""
    title, axis, factor, digits = CURVES[column]
    lines: dict[str, dict[int, Number]] = {}
    for name, curve in curves.items():
        lines[name] = {}
        if curve is not None and column in curve:
            for epoch, value in curve[["epoch", column]].to_numpy():
                lines[name][int(epoch) + 1] = Number(factor * value, digits=digits)
    return plot_lines(title, "Epoch by epoch.", "epoch", axis, lines)


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
    shares = {}
    for run, one in evaluations.items():
        shares[run] = {
            "all images": one.overall,
            f"worst {one_of}": one.worst_group.accuracy,
            f"mean over {all_of}": one.average_over_groups,
        }
        if one.average_in_training_mixture is not None:
            shares[run][f"training mixture of {all_of}"] = one.average_in_training_mixture
        shares[run]["calibration error"] = one.calibration_error
    by_ratio = {}
    for run, one in evaluations.items():
        by_ratio[run] = {ratio: Number(100 * share) for ratio, share in one.by_ratio.items()}
    by_context = {run: one.by_context for run, one in evaluations.items()}
    by_label = {run: one.by_label for run, one in evaluations.items()}
    return [
        Heading(f"Tested on {names}: {first.images} images"),
        *_shares(f"Accuracies in percent on {first.images} images ({names})", shares),
        *plot_lines(
            "Accuracy against the dominant ratio of the test set",
            "From contexts that are reversed (left) to contexts as in training (right).",
            "dominant ratio",
            "accuracy, %",
            by_ratio,
        ),
        *_shares("Accuracy in percent by context", by_context),
        *_shares("Accuracy in percent by class", by_label),
    ]


def _shares(caption: str, shares: Mapping[str, Mapping[str, float]]) -> list[Table]:
    """Return the shares of each run as a table in percent; none without any."""
    columns = list(dict.fromkeys(chain.from_iterable(shares.values())))
    rows = []
    for run, one in shares.items():
        rows.append(TableLine(run, tuple(_percent(one.get(name)) for name in columns)))
    return [Table(caption, "run", columns, rows)] if columns else []


def _percent(share: float | None) -> Cell:
    return Missing("not tested") if share is None else Number(100 * share)


def _overview(
    runs: Mapping[str, Run],
    curves: Mapping[str, pd.DataFrame | None],
    tested: Mapping[str, Evaluation],
) -> Table:
    settings = {name: _settings(run) for name, run in runs.items()}
    values = pd.DataFrame(settings.values(), index=list(settings))
    differ = values.columns[values.nunique() > 1].difference(
        [*_ALWAYS, "epochs", "patience"], False
    )
    said = [*_ALWAYS, *differ]
    lines = []
    for name, of_run in settings.items():
        curve = curves[name]
        may_stop = " at most" if of_run.get("patience", "None") != "None" else ""
        cells: list[Cell] = [of_run.get(key, "?") for key in said]
        done = 0 if curve is None else len(curve)
        cells.append(f"{done} of{may_stop} {of_run.get('epochs', '?')}")
        cells.append(_best(curve))
        own = tested.get(name)
        shares = (None, None) if own is None else (own.overall, own.worst_group.accuracy)
        cells += map(_percent, shares)
        lines.append(TableLine(name, tuple(cells)))
    parts = {"group" if one.by_context else "class" for one in tested.values()}
    worst = " or ".join(sorted(parts)) or "group"
    names = [key.replace("_", " ") for key in said]
    columns = [*names, "epochs", "best validation (%)", "test (%)", f"worst {worst}, test (%)"]
    note = (
        "Test: the test images of the run's own split, looked at once. Runs with other splits have"
        " other test images."
    )
    return Table("Trainings", "run", columns, lines, note=note)


def _settings(run: Run) -> dict[str, str]:
    """Return how a run was trained, and at which dominant ratio."""
    given = run.settings.get("training")
    settings = dict(given) if isinstance(given, Mapping) else {}
    with suppress(OSError, LookupError, TypeError, ValueError):
        split = read_json((run.folder / MANIFEST).with_suffix(".json"))
        settings["ratio"] = split["ratio"] or "natural"
    return {name: str(value) for name, value in settings.items()}


def _best(curve: pd.DataFrame | None) -> Cell:
    if curve is None or "val_accuracy" not in curve.columns or not len(curve):
        return Missing("no epoch finished yet" if curve is None else "no validation images")
    return Number(100 * float(curve["val_accuracy"].max()))
