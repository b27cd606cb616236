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
from pfdl.contexts.groups import Accuracies, GroupAccuracy, name_class, name_context
from pfdl.diagnosis.result import Diagnosis
from pfdl.diagnosis.shift import ShiftCurve
from pfdl.diagnosis.verdict import CANNOT_TELL, FEW, NO, YES
from pfdl.report.page import PALETTE, blocks, draw_svg, figure, inline, reading, render
from pfdl.vision.advice import advise
from pfdl.vision.diagnosis import KNOWN, ImageDiagnosis, compare_all, spread
from pfdl.vision.places import map_contexts
from pfdl.vision.properties import UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Named = Mapping[str, ImageDiagnosis]

WORST_GROUPS = SHOWN_CONTEXTS = 12
SHOWN_GROUPS = 3
THUMBNAILS = 7  # in a row
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
    first, *_ = diagnoses = list(named.values())
    sections = [
        ("Side by side", _side_by_side(named)),
        ("What the files say of the class", _properties(first)),
    ]
    wrong: list[Markup] = []
    for name, diagnosis in named.items():
        sections.append((f"What was found about {name}", _verdict(diagnosis, data, options)))
        wrong += _wrong(name, diagnosis)
    pictures = [
        ("What the contexts look like", _contexts(diagnoses)),
        ("What the model gets wrong", wrong),
    ]
    if all(diagnosis.contexts_are == KNOWN for diagnosis in diagnoses):
        pictures.reverse()  # contexts that nobody named are to be looked at first
    sections += [
        *pictures,
        ("Where the contexts are seen", _places(first)),
        ("If the contexts shift", _shift(named)),
        ("Accuracy by class, context and group", _accuracy(named)),
        ("How to read this page", [reading.diagnosis()]),
    ]
    filled = [(title, content) for title, content in sections if content]
    return render(f"Diagnosis of {' and '.join(named)}", _introduction(named), filled)


def _introduction(named: Named) -> list[Markup]:
    """Return the answers, and what they rest on."""
    answers = [
        blocks.text(
            f"Does {name} rely on the context? {diagnosis.verdict()[0]}", TONES[diagnosis.answer]
        )
        for name, diagnosis in named.items()
    ]
    comparisons, warning = compare_all(named)
    sizes = dict.fromkeys(str(len(diagnosis.rows)) for diagnosis in named.values())
    rests_on = f"Measured on {' and '.join(sizes)} images that took no part in training."
    warnings = [blocks.text(warning, "warning")] if warning else []
    return [*answers, *map(blocks.text, [*comparisons, rests_on]), *warnings]


def _side_by_side(named: Named) -> list[Markup]:
    """Return one line for each model, where there are several."""
    if len(named) < 2:
        return []
    rows = []
    for name, diagnosis in named.items():
        reliance = diagnosis.found.reliance
        worst = diagnosis.accuracies.worst_group
        usual, elsewhere = math.nan, math.nan
        if reliance is not None:
            usual, elsewhere = reliance.in_usual, reliance.elsewhere
        shares = [
            figure(100 * share, missing="the usual contexts are not known")
            for share in (diagnosis.accuracies.overall, usual, elsewhere, worst.accuracy)
        ]
        rows.append((name, [diagnosis.answer, *shares, f"{worst.name}, {worst.samples} images"]))
    columns = ["relies", "all images", "usual contexts", "elsewhere", "worst group", "which is"]
    return [Markup(blocks.table("Accuracy (%) of the models", "model", columns, rows))]


def _properties(diagnosis: ImageDiagnosis) -> list[Markup]:
    """Show which plain properties of the files go with the class."""
    if not diagnosis.properties:
        return []
    labels: dict[str, None] = {}
    for test in diagnosis.properties:
        labels |= dict.fromkeys(test.by_class)
    rows = []
    for test in diagnosis.properties:
        unit = f" ({UNITS[test.name]})" if UNITS[test.name] else ""
        chance = "below 0.001" if test.chance < 0.001 else f"{test.chance:.3f}"
        strength = Markup(blocks.number(f"{test.strength:.2f}", strong=test.matters))
        typical = [test.by_class.get(label, "not known") for label in labels]
        rows.append((f"{test.name}{unit}", [strength, chance, *typical]))
    caption = f"Properties of {max(test.images for test in diagnosis.properties)} images by class"
    columns = ["strength", "chance", *map(name_class, labels)]
    quiet = [place for place, test in enumerate(diagnosis.properties) if not test.matters]
    notes = (
        "Strength: Cramér's V with the class, 0 to 1. Chance: of so strong an association under"
        " independence, for all properties together (Holm). By class the median, or the most"
        " frequent word.",
        "A property may belong to the object, or to how the images were made: look.",
    )
    return [Markup(blocks.table(caption, "property", columns, rows, notes, quiet))]


def _places(diagnosis: ImageDiagnosis) -> list[Markup]:
    """Draw where in the image the contexts of a class differ."""
    if diagnosis.images is None or len(set(diagnosis.contexts)) < 2:
        return []
    shares = map_contexts(
        diagnosis.images, [row.class_name for row in diagnosis.rows], diagnosis.contexts
    )
    if shares is None:
        return []

    def draw(axes: Axes) -> None:
        axes.pcolormesh(shares[::-1], vmin=0, vmax=max(0.05, float(shares.max())), cmap="Greys")
        for row, column in np.ndindex(*shares.shape):
            share = shares[::-1][row, column]
            light = share > 0.6 * shares.max()
            axes.text(
                column + 0.5,
                row + 0.5,
                f"{100 * share:.0f}",
                ha="center",
                va="center",
                color="white" if light else "black",
            )
        axes.set_aspect("equal")
        axes.set_axis_off()

    summary = (
        "How much of the differences of colour between images of a class its contexts explain, in"
        " percent, for each part of the image. Even: the whole image. One corner or border: a mark"
        " there."
    )
    return [Markup(blocks.plot("Where", summary, inline(draw_svg(draw), "places"), "places"))]


def save_result(result: Diagnosis, path: Path) -> None:
    """Write the page about a diagnosis of arrays."""
    write_atomically(path, result_page(result, path.stem))


def result_page(result: Diagnosis, title: str) -> str:
    """Return the page about a diagnosis of arrays: no pictures, but all figures.

    Args:
        result: What :func:`pfdl.diagnose` found.
        title: Its name.
    """
    first, *others = result.verdict()
    sections = [("What was found", [blocks.text(words) for words in others])]
    if result.reliance is not None and result.shift is not None:
        sections.append(("If the contexts shift", [_draw_shift({title: result.shift})]))
    if result.accuracies is not None:
        groups = sorted(result.accuracies.groups, key=WORST_FIRST)
        table = _share_table(
            "Accuracy (%) by group, the worst first",
            "group",
            {"accuracy": {group.name: group.accuracy for group in groups}},
            lambda group: f"{group.name}, {group.samples} samples",
            {group.name: group for group in groups},
        )
        sections.append(("Accuracy by group", [table]))
    sections.append(("How to read this page", [reading.diagnosis()]))
    return render(f"Diagnosis: {title}", [blocks.text(first, TONES[result.answer])], sections)


def _verdict(diagnosis: ImageDiagnosis, data: str, options: Sequence[str]) -> list[Markup]:
    verdict = [
        *(blocks.text(words) for words in diagnosis.verdict()[1:]),
        blocks.text("What to try next:"),
    ]
    for sentence, command in advise(diagnosis, data, options):
        verdict += [blocks.text(sentence), blocks.command(command)]
    return verdict


def _contexts(diagnoses: Sequence[ImageDiagnosis]) -> list[Markup]:
    """Show images of each group, or of each context where there are many groups; once where the
    runs have the same images in the same contexts.
    """
    galleries: list[Markup] = []
    shown = [diagnosis for diagnosis in diagnoses if diagnosis.images is not None]
    same = len({(diagnosis.rows, diagnosis.contexts) for diagnosis in shown}) == 1
    for diagnosis in shown[:1] if same else shown:
        groups = diagnosis.accuracies.groups
        if len(groups) <= SHOWN_CONTEXTS:
            by_context = sorted(groups, key=lambda group: (str(group.context), str(group.label)))
            galleries += [_group(diagnosis, group) for group in by_context]
            continue
        for context in list(diagnosis.accuracies.by_context)[:SHOWN_CONTEXTS]:
            galleries.append(_context(diagnosis, context))
    return galleries


def _context(diagnosis: ImageDiagnosis, context: str) -> Markup:
    """Show images of all classes in one context."""
    usual = [
        name_class(label) for label, where in diagnosis.usual_contexts.items() if where == context
    ]
    usually = f"; usual in training for {', '.join(usual)}" if usual else ""
    title = f"{name_context(context)}: {diagnosis.contexts.count(context)} test images{usually}"
    samples = diagnosis.samples_of(None, context, THUMBNAILS)
    return _gallery(title, [_thumbnail(diagnosis, sample) for sample in samples])


def _group(diagnosis: ImageDiagnosis, group: GroupAccuracy) -> Markup:
    """Show images of one class in one context, with how many there are and how many are right."""
    is_usual = diagnosis.usual_contexts.get(group.label) == group.context
    usually = "; usual in training for this class" if is_usual else ""
    count = f"{group.samples} test images" if group.samples > 1 else "1 test image"
    few = "; few to rest on" if group.samples < FEW else ""
    title = f"{group.name}: {count}, {100 * group.accuracy:.0f} % right{usually}{few}"
    samples = spread(diagnosis.inside(group.label, group.context), THUMBNAILS)
    pictures = [_thumbnail(diagnosis, sample, named=False) for sample in samples]
    return _gallery(title, pictures)


def _gallery(title: str, pictures: Sequence[tuple[str, str, str]]) -> Markup:
    return Markup(blocks.gallery(title[0].upper() + title[1:], pictures))


def _wrong(name: str, diagnosis: ImageDiagnosis) -> list[Markup]:
    """Show images of the worst groups, those that are not recognised first."""
    galleries: list[Markup] = []
    if diagnosis.images is None:
        return galleries
    for group in sorted(diagnosis.accuracies.groups, key=WORST_FIRST)[:SHOWN_GROUPS]:
        if wrong := round((1 - group.accuracy) * group.samples):
            title = f"{name}, {group.name}: {wrong} of {group.samples} images not recognised"
            pictures = [
                _thumbnail(diagnosis, sample)
                for sample in diagnosis.samples_of(group.label, group.context, THUMBNAILS)
            ]
            galleries.append(blocks.gallery(title, pictures))
    return galleries


def _shift(named: Named) -> list[Markup]:
    """Draw the accuracy to expect if the contexts shift."""
    curves = {}
    forecasts = []
    for name, diagnosis in named.items():
        curve, gap = diagnosis.found.shift, diagnosis.found.gap
        if diagnosis.found.reliance is None or curve is None:
            continue
        curves[name] = curve
        if gap is not None and not gap.agrees_with(curve):
            forecasts.append(blocks.text(f"{name}: {gap.forecast(curve)}", "warning"))
    return [*forecasts, _draw_shift(curves)] if curves else []


def _draw_shift(curves: Mapping[str, ShiftCurve]) -> Markup:
    """Draw curves of the accuracy to expect, with what belongs to them in words."""

    def draw(axes: Axes) -> None:
        for number, (name, curve) in enumerate(curves.items()):
            colour = PALETTE[f"c{number % 9 + 1}"]
            dash = DASHES[number % len(DASHES)]
            accuracy = 100 * curve.accuracy
            two_errors = 200 * curve.standard_error
            low = np.clip(accuracy - two_errors, 0, 100)
            high = np.clip(accuracy + two_errors, 0, 100)
            axes.fill_between(curve.shift, low, high, color=colour, alpha=0.16, linewidth=0)
            axes.plot(curve.shift, accuracy, color=colour, linestyle=dash, label=printable(name))
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
    for name, diagnosis in named.items():
        by_class = _shares_by_class(diagnosis)
        tables.append(_share_table(f"{name}: accuracy (%) by class", "class", by_class, name_class))
        by_context = {
            title: side.by_context for title, side in _sides(diagnosis) if side.by_context
        }
        if by_context:
            title = f"{name}: accuracy (%) by context"
            tables.append(_share_table(title, "context", by_context, name_context))
    first, *_ = named
    worst = sorted(named[first].accuracies.groups, key=WORST_FIRST)[:WORST_GROUPS]
    shares = {}
    for name, diagnosis in named.items():
        shares[name] = {group.name: group.accuracy for group in diagnosis.accuracies.groups}
    groups = _share_table(
        f"The worst groups of {first}: accuracy (%)",
        "group",
        shares,
        lambda group: f"{group.name}, {group.samples} images",
        {group.name: group for group in worst},
    )
    return [blocks.side_by_side(tables), groups]


def _sides(diagnosis: ImageDiagnosis) -> list[tuple[str, Accuracies]]:
    """Return the accuracies on validation images, if there are any, and on test images."""
    sides = []
    for title, side in (("validation", diagnosis.validation), ("test", diagnosis.accuracies)):
        if side is not None:
            sides.append((f"{title}, {sum(group.samples for group in side.groups)}", side))
    return sides


def _shares_by_class(diagnosis: ImageDiagnosis) -> dict[str, dict[Any, float]]:
    """Return for each column of a table the accuracy on all images and in each class."""
    columns = {
        title: {"all images": side.overall, **side.by_label} for title, side in _sides(diagnosis)
    }
    reliance = diagnosis.found.reliance
    if reliance is not None:
        usual = columns["in its usual context"] = {"all images": reliance.in_usual}
        elsewhere = columns["elsewhere"] = {"all images": reliance.elsewhere}
        for line in reliance.by_class:
            usual[line.label] = line.in_usual
            elsewhere[line.label] = line.elsewhere
    return columns


def _share_table(
    title: str,
    corner: str,
    columns: Mapping[str, Mapping[Any, float]],
    name: Callable[[Any], str],
    lines: Mapping[Any, Any] | None = None,
) -> Markup:
    """Return shares in percent as a table.

    Args:
        title: Above the table.
        corner: What the lines are.
        columns: The shares of each column, by line.
        name: How a line is called.
        lines: Which lines there are, and by what each is named; by default all of them.
    """
    if lines is None:
        lines = {}
        for shares in columns.values():
            lines |= {line: line for line in shares}
    rows = []
    for line, named_by in lines.items():
        cells = [
            figure(100 * column.get(line, math.nan), missing="not known")
            for column in columns.values()
        ]
        rows.append((name(named_by), cells))
    return Markup(blocks.table(title, corner, list(columns), rows))


def _thumbnail(
    diagnosis: ImageDiagnosis, sample: int, *, named: bool = True
) -> tuple[str, str, str]:
    """Return a small PNG file in base 64, what it shows, and the words below it, which name the
    group unless the title does.
    """
    assert diagnosis.images is not None, "the caller asks first"
    row, answer, context = (
        diagnosis.rows[sample],
        diagnosis.predictions[sample],
        diagnosis.contexts[sample],
    )
    picture = Image.fromarray(diagnosis.images[sample][0].permute(1, 2, 0).numpy())
    picture.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    where = GroupAccuracy(row.class_name, context, math.nan, 0).name
    png = base64.b64encode(stream.getvalue()).decode()
    taken = "" if answer == row.class_name else f"taken for {name_class(answer)}"
    words = [where, taken] if named else [taken]
    return png, where, ", ".join(filter(None, words))
