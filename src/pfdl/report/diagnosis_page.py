"""``pfdl diagnose``: one page about one or two trained models."""

from __future__ import annotations

import base64
import io
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from pfdl._internal.files import write_atomically
from pfdl._internal.text import printable
from pfdl.contexts.groups import GroupAccuracy, name_class, name_context
from pfdl.diagnosis.result import Diagnosis
from pfdl.diagnosis.shift import ShiftCurve
from pfdl.diagnosis.verdict import CANNOT_TELL, NO, YES
from pfdl.report.page import PALETTE, blocks, draw_svg, figure, inline, reading, render
from pfdl.vision.advice import advise
from pfdl.vision.diagnosis import KNOWN, OTHER_IMAGES, ImageDiagnosis, compare_diagnoses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Named = Mapping[str, ImageDiagnosis]

WORST_GROUPS = SHOWN_CONTEXTS = 12
SHOWN_GROUPS = 3
THUMBNAILS = 8  # in a row
THUMBNAIL_SIZE = 96
DASHES = ("-", "--", ":", "-.")
WORST_FIRST = operator.attrgetter("accuracy", "name")
TONES = {YES: "yes", NO: "no", CANNOT_TELL: "unclear"}


def diagnosis_page(named: Named, data: str, options: Sequence[str] = ()) -> str:
    """Return the page about one model, or two to compare, as HTML.

    Args:
        named: The diagnoses, by short names of their runs.
        data: What the user called the data on the command line.
        options: Further words of the command line that say how to read the data.
    """
    diagnoses = list(named.values())
    introduction = [
        blocks.text(f"Does {name} rely on the context? {one.verdict()[0]}", TONES[one.answer])
        for name, one in named.items()
    ]
    first = next(iter(named))
    for name, one in list(named.items())[1:]:
        comparison = compare_diagnoses(diagnoses[0], one)
        introduction.append(blocks.text(comparison.sentence(first, name)))
    tested = " and ".join(str(count) for count in dict.fromkeys(len(one.rows) for one in diagnoses))
    introduction.append(blocks.text(f"Measured on {tested} images that took no part in training."))
    if any(one.rows != diagnoses[0].rows for one in diagnoses):
        introduction.append(blocks.text(OTHER_IMAGES, "warning"))
    pictures = [
        ("What the contexts look like", _contexts(diagnoses)),
        (
            "What the model gets wrong",
            [block for name, one in named.items() for block in _wrong(name, one)],
        ),
    ]
    if all(one.contexts_are == KNOWN for one in diagnoses):
        pictures.reverse()  # contexts that nobody named are to be looked at first
    sections = [
        *(
            (f"What was found about {name}", _verdict(one, data, options))
            for name, one in named.items()
        ),
        *pictures,
        ("If the contexts shift", _shift(named)),
        ("Accuracy by class, context and group", _accuracy(named)),
        ("How to read this page", [reading.diagnosis()]),
    ]
    return render(
        f"Diagnosis of {' and '.join(named)}", introduction, [one for one in sections if one[1]]
    )


def save_result(found: Diagnosis, path: Path) -> None:
    """Write the page about a diagnosis of arrays."""
    write_atomically(path, result_page(found, path.stem))


def result_page(found: Diagnosis, title: str) -> str:
    """Return the page about a diagnosis of arrays: no pictures, but all figures.

    Args:
        found: What :func:`pfdl.diagnose` found.
        title: Its name.
    """
    first, *others = found.verdict()
    sections = [("What was found", [blocks.text(words) for words in others])]
    if found.reliance is not None and found.shift is not None:
        sections.append(("If the contexts shift", [_draw_shift({title: found.shift})]))
    if found.accuracies is not None:
        groups = sorted(found.accuracies.groups, key=WORST_FIRST)
        counts = {group.name: group.samples for group in groups}
        shares = {"accuracy": {group.name: group.accuracy for group in groups}}
        table = _share_table(
            "Accuracy (%) by group, the worst first",
            "group",
            shares,
            lambda name: f"{name}, {counts[name]} samples",
        )
        sections.append(("Accuracy by group", [table]))
    sections.append(("How to read this page", [reading.diagnosis()]))
    return render(f"Diagnosis: {title}", [blocks.text(first, TONES[found.answer])], sections)


def _verdict(one: ImageDiagnosis, data: str, options: Sequence[str]) -> list[Markup]:
    found = [*(blocks.text(words) for words in one.verdict()[1:]), blocks.text("What to try next:")]
    for sentence, command in advise(one, data, options):
        found += [blocks.text(sentence), blocks.command(command)]
    return found


def _contexts(diagnoses: Sequence[ImageDiagnosis]) -> list[Markup]:
    """Show images of each context, once where the runs have the same images in the same
    contexts.
    """
    galleries: list[Markup] = []
    diagnoses = [one for one in diagnoses if one.images is not None]
    same = len({(one.rows, one.contexts) for one in diagnoses}) == 1
    for one in diagnoses[:1] if same else diagnoses:
        for context in list(one.accuracies.by_context)[:SHOWN_CONTEXTS]:
            usual = [
                name_class(label) for label, where in one.usual_contexts.items() if where == context
            ]
            usually = f"; usual in training for {', '.join(usual)}" if usual else ""
            title = f"{name_context(context)}: {one.contexts.count(context)} test images{usually}"
            pictures = [
                _thumbnail(one, sample) for sample in one.samples_of(None, context, THUMBNAILS)
            ]
            galleries.append(blocks.gallery(title[0].upper() + title[1:], pictures))
    return galleries


def _wrong(name: str, one: ImageDiagnosis) -> list[Markup]:
    """Show images of the worst groups, those that are not recognised first."""
    galleries: list[Markup] = []
    if one.images is None:
        return galleries
    for group in sorted(one.accuracies.groups, key=WORST_FIRST)[:SHOWN_GROUPS]:
        if wrong := round((1 - group.accuracy) * group.samples):
            title = f"{name}, {group.name}: {wrong} of {group.samples} images not recognised"
            pictures = [
                _thumbnail(one, sample)
                for sample in one.samples_of(group.label, group.context, THUMBNAILS)
            ]
            galleries.append(blocks.gallery(title, pictures))
    return galleries


def _shift(named: Named) -> list[Markup]:
    """Draw the accuracy to expect if the contexts shift."""
    founds = {name: one.found for name, one in named.items() if one.found.reliance is not None}
    curves = {name: found.shift for name, found in founds.items() if found.shift is not None}
    if not curves:
        return []

    forecasts = [
        blocks.text(f"{name}: {gap.forecast(curve)}", "warning")
        for name, curve in curves.items()
        if (gap := founds[name].gap) is not None and not gap.agrees_with(curve)
    ]
    return [*forecasts, _draw_shift(curves)]


def _draw_shift(curves: Mapping[str, ShiftCurve]) -> Markup:
    """Draw curves of the accuracy to expect, with what belongs to them in words."""

    def draw(axes: Axes) -> None:
        for number, (name, curve) in enumerate(curves.items()):
            colour, dash = PALETTE[f"c{number % 9 + 1}"], DASHES[number % len(DASHES)]
            band = np.clip(
                100 * curve.accuracy + np.outer([-200, 200], curve.standard_error), 0, 100
            )
            axes.fill_between(curve.shift, *band, color=colour, alpha=0.16, linewidth=0)
            axes.plot(
                curve.shift,
                100 * curve.accuracy,
                color=colour,
                linestyle=dash,
                label=printable(name),
            )
        axes.set_xlabel("shift of the contexts")
        axes.set_ylabel("accuracy (%)")
        if len(curves) > 1:
            axes.legend(frameon=False)

    summary = (
        "At 0 the contexts of a class are as frequent as in training, at 0.5 all of them are"
        " equally frequent, at 1 the frequencies are reversed. Predicted from the accuracies of the"
        " groups (one class in one context), with two standard errors; how another training would"
        " end is not in it, nor what else differs in the test images."
    )
    picture = inline(draw_svg(draw), "shift")
    return Markup(blocks.plot("Accuracy if the contexts shift", summary, picture, "shift"))


def _accuracy(named: Named) -> list[Markup]:
    """Show by class and by context what is recognised, validation beside test, and the worst
    groups.
    """
    tables = []
    groups = {
        name: {group.name: group for group in one.accuracies.groups} for name, one in named.items()
    }
    for name, one in named.items():
        sides = {
            f"{title}, {sum(group.samples for group in side.groups)}": side
            for title, side in (("validation", one.validation), ("test", one.accuracies))
            if side is not None
        }
        by_class = {
            title: {"all images": side.overall, **side.by_label} for title, side in sides.items()
        }
        if (reliance := one.found.reliance) is not None:
            lines: dict[Any, Any] = {
                "all images": reliance,
                **{line.label: line for line in reliance.by_class},
            }
            by_class["in its usual context"] = {
                label: line.in_usual for label, line in lines.items()
            }
            by_class["elsewhere"] = {label: line.elsewhere for label, line in lines.items()}
        tables.append(_share_table(f"{name}: accuracy (%) by class", "class", by_class, name_class))
        if by_context := {
            title: side.by_context for title, side in sides.items() if side.by_context
        }:
            tables.append(
                _share_table(
                    f"{name}: accuracy (%) by context", "context", by_context, name_context
                )
            )
    first = next(iter(named))
    worst = [group.name for group in sorted(groups[first].values(), key=WORST_FIRST)[:WORST_GROUPS]]
    shares = {
        name: {group: found[group].accuracy for group in worst if group in found}
        for name, found in groups.items()
    }

    title = f"The worst groups of {first}: accuracy (%)"
    counted = _share_table(
        title, "group", shares, lambda group: f"{group}, {groups[first][group].samples} images"
    )
    return [blocks.side_by_side(tables), counted]


def _share_table(
    title: str, corner: str, shares: Mapping[str, Mapping[Any, float]], name: Callable[[Any], str]
) -> Markup:
    """Return shares in percent, a column for each of them."""
    keys = dict.fromkeys(key for share in shares.values() for key in share)
    rows = [
        (
            name(key),
            [
                figure(100 * share.get(key, math.nan), missing="not known")
                for share in shares.values()
            ],
        )
        for key in keys
    ]
    return Markup(blocks.table(title, corner, list(shares), rows))


def _thumbnail(one: ImageDiagnosis, sample: int) -> tuple[str, str, str]:
    """Return a small PNG file in base 64, what it shows, and the words below it."""
    assert one.images is not None, "the caller asks first"
    row, answer, context = one.rows[sample], one.predictions[sample], one.contexts[sample]
    picture = Image.fromarray(one.images[sample][0].permute(1, 2, 0).numpy())
    picture.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    where = GroupAccuracy(row.class_name, context, math.nan, 0).name
    taken = "" if answer == row.class_name else f", taken for {name_class(answer)}"
    return base64.b64encode(stream.getvalue()).decode(), where, f"{where}{taken}"
