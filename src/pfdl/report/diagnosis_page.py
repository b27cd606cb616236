"""``pfdl diagnose``: one page about one or two trained models."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence

from PIL import Image

from pfdl._internal.runs import name_folders, read_run
from pfdl.contexts.groups import GroupAccuracy, name_class, name_context
from pfdl.diagnosis.result import known_median
from pfdl.diagnosis.verdict import CANNOT_TELL, NO, YES
from pfdl.report import provenance
from pfdl.report.blocks import Block, Gallery, Page, Section, SideBySide, Text, Thumbnail
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl.vision.advice import advise
from pfdl.vision.diagnosis import KNOWN, ImageDiagnosis, compare_diagnoses

Named = Sequence[tuple[str, ImageDiagnosis]]

WORST_GROUPS = 12
SHOWN_CONTEXTS = 12
SHOWN_GROUPS = 3
SHOWN_CONFUSIONS = 4
THUMBNAILS = 8  # in a row
THUMBNAIL_SIZE = 96
TONES = {YES: "yes", NO: "no", CANNOT_TELL: "unclear"}


def build_page(diagnoses: Sequence[ImageDiagnosis], data: str, options: Sequence[str] = ()) -> Page:
    """Build the page about one model, or two to compare; data and options are the words of the command line."""
    named = name_runs(diagnoses)
    introduction: list[Block] = [
        Text(f"Does {name} rely on the context? {one.verdict()[0]}", TONES[one.answer]) for name, one in named
    ]
    if len(named) > 1:
        introduction.append(Text(compare(named)))
    tested = " and ".join(str(count) for count in dict.fromkeys(len(one.rows) for one in diagnoses))
    introduction.append(Text(f"Measured on {tested} images that took no part in training."))
    if any(one.rows != diagnoses[0].rows for one in diagnoses):
        introduction.append(
            Text("The two runs have different test images: differences are also those of the images.", "warning")
        )
    pictures = [
        Section("What the contexts look like", _contexts(diagnoses)),
        Section("What the model gets wrong", [block for name, one in named for block in _wrong(name, one)]),
    ]
    if all(one.contexts_are == KNOWN for one in diagnoses):
        pictures.reverse()  # contexts that nobody named are to be looked at first
    sections = [
        *(Section(f"What was found about {name}", _verdict(one, data, options)) for name, one in named),
        *pictures,
        *_shift(named),
        Section("Accuracy by class, context and group", _accuracy(named)),
        Section("All figures", [_figures(named)]),
        Section("How to read this page", [Text(words) for words in _READING]),
        provenance.build([read_run(one.folder) for one in diagnoses]),
    ]
    title = "Diagnosis of " + " and ".join(name for name, _ in named)
    return Page(title, introduction, [section for section in sections if section.blocks])


def name_runs(diagnoses: Sequence[ImageDiagnosis]) -> Named:
    """Return the diagnoses with short names of their runs."""
    return list(zip(name_folders([one.folder for one in diagnoses]), diagnoses, strict=True))


def compare(named: Named) -> str:
    """Say which of two models relies more on the context."""
    (first, one), (second, other) = named
    return compare_diagnoses(one, other).sentence(first, second)


def _verdict(one: ImageDiagnosis, data: str, options: Sequence[str]) -> list[Block]:
    blocks: list[Block] = [*(Text(words) for words in one.verdict()[1:]), Text("What to try next:")]
    for advice in advise(one, data, options):
        blocks += [Text(advice.sentence), Text(advice.command, "command")]
    return blocks


def _contexts(diagnoses: Sequence[ImageDiagnosis]) -> list[Block]:
    """Show images of each context, once where the runs have the same images in the same contexts."""
    blocks: list[Block] = []
    seen = []
    for one in diagnoses:
        if (one.rows, one.contexts) in seen or one.found.accuracies is None:
            continue
        seen.append((one.rows, one.contexts))
        for context in list(one.found.accuracies.by_context)[:SHOWN_CONTEXTS]:
            usual = [name_class(label) for label, where in one.usual.items() if where == context]
            usually = f"; usual in training for {', '.join(usual)}" if usual else ""
            title = f"{name_context(context)}: {one.contexts.count(context)} test images{usually}"
            blocks.append(_gallery(title[0].upper() + title[1:], one, one.samples_of(None, context, THUMBNAILS)))
    return blocks


def _wrong(name: str, one: ImageDiagnosis) -> list[Block]:
    """Show images of the worst groups, and of the most frequent confusions."""
    if one.found.accuracies is None:
        return []
    blocks: list[Block] = []
    for group in sorted(one.found.accuracies.groups, key=_worst_first)[:SHOWN_GROUPS]:
        if group.accuracy == 1:
            continue
        title = f"{name}, worst groups: {group.name}, {100 * group.accuracy:.0f} % of {group.samples} images recognised"
        blocks.append(_gallery(title, one, one.samples_of(group.label, group.context, THUMBNAILS)))
    for label, answer, samples in one.confusions()[:SHOWN_CONFUSIONS]:
        total = sum(row.class_name == label for row in one.rows)
        title = f"{name}: {name_class(label)} taken for {name_class(answer)}, {len(samples)} of {total} images"
        step = max(len(samples) // THUMBNAILS, 1)  # not all of one context
        blocks.append(_gallery(title, one, samples[::step][:THUMBNAILS]))
    return blocks


def _shift(named: Named) -> list[Section]:
    """Draw the accuracy to expect if the contexts shift."""
    series = [
        Series(
            name,
            curve.shift.round(3).tolist(),
            (100 * curve.accuracy).round(3).tolist(),
            (200 * curve.standard_error).round(3).tolist(),
            style="lines",
            colour=number + 1,
            band=True,
        )
        for number, (name, one) in enumerate(named)
        if (curve := one.found.shift) is not None and one.found.reliance is not None
    ]
    if not series:
        return []
    summary = (
        "At 0 the contexts of a class are as frequent as in training, at 0.5 all of them are equally frequent, at 1 "
        "the frequencies are reversed. Predicted from the accuracies of the groups (one class in one context), with "
        "two standard errors; how another training would end is not in it, nor what else differs in the test images."
    )
    plot = Plot("Accuracy if the contexts shift", summary, "shift of the contexts", "accuracy (%)", series)
    forecasts: list[Block] = [
        Text(f"{name}: {one.gap.forecast(shift)}", "warning")
        for name, one in named
        if one.gap is not None and (shift := one.found.shift) is not None and not one.gap.agrees_with(shift)
    ]
    return [Section("If the contexts shift", [*forecasts, plot])]


def _accuracy(named: Named) -> list[Block]:
    """Show validation beside test, what each class loses, and the worst groups."""
    if any(one.found.accuracies is None for _, one in named):
        return []
    blocks: list[Block] = []
    losses: list[Block] = []
    for name, one in named:
        sides = {
            f"{title}, {sum(group.samples for group in side.groups)}": side
            for title, side in (("validation", one.validation), ("test", one.found.accuracies))
            if side is not None
        }
        by_class = {title: {"all images": side.overall, **side.by_label} for title, side in sides.items()}
        by_context = {title: side.by_context for title, side in sides.items() if side.by_context}
        blocks.append(_share_table(f"{name}: accuracy (%) by class", "class", by_class, name_class))
        if by_context:
            blocks.append(_share_table(f"{name}: accuracy (%) by context", "context", by_context, name_context))
        if one.found.reliance is not None:
            headers = ["usual context", "accuracy there (%)", "accuracy elsewhere (%)", "loss (points)"]
            rows = [
                Row(
                    name_class(line.label),
                    (name_context(line.usual_context), *map(_percent, (line.in_usual, line.elsewhere, line.loss))),
                )
                for line in one.found.reliance.by_class
            ]
            losses.append(Table(f"{name}: what each class loses outside its usual context", "class", headers, rows))
    return [SideBySide(blocks), *losses, _worst_groups(named)]


def _worst_groups(named: Named) -> Table:
    groups = [
        {group.name: group for group in one.found.accuracies.groups} if one.found.accuracies else {} for _, one in named
    ]
    rows = []
    for group in sorted(groups[0].values(), key=_worst_first)[:WORST_GROUPS]:
        shares = [other[group.name].accuracy if group.name in other else math.nan for other in groups]
        rows.append(Row(group.name, (*map(_percent, shares), Number(group.samples, digits=0))))
    columns = [name for name, _ in named]
    note = f"The lowest of {columns[0]} first."
    return Table("The worst groups: accuracy (%)", "group", [*columns, "images"], rows, note=note)


def _worst_first(group: GroupAccuracy) -> tuple[float, str]:
    return group.accuracy, group.name


def _figures(named: Named) -> Table:
    """Show what fits in a line each; a model without contexts has no figures about them."""
    lines: dict[str, list[Cell]] = {}
    for _, one in named:
        found, relies = one.found, one.found.reliance
        figures: dict[str, Cell] = {
            "test images": Number(len(one.rows), digits=0),
            "features": Number(len(found.r2), digits=0),
            "R² of a feature from the others (median)": _number(known_median(found.r2), 2),
            "the same within classes (median)": _number(known_median(found.r2_within_class), 2),
        }
        if found.accuracies is not None:
            figures["accuracy on all test images (%)"] = _percent(found.accuracies.overall)
            figures["accuracy, mean over groups (%)"] = _percent(found.accuracies.average_over_groups)
        if one.gap is not None:
            gap = Number(100 * one.gap.difference, 100 * one.gap.standard_error)
            figures["validation less test accuracy (points)"] = gap
        if relies is not None:
            effect = Missing() if math.isnan(relies.effect) else Number(100 * relies.effect, 100 * relies.effect_error)
            figures["accuracy in the usual context of the class (%)"] = _percent(relies.in_usual)
            figures["accuracy elsewhere (%)"] = _percent(relies.elsewhere)
            figures["effect of the usual context (points)"] = effect
            figures["wrong answers that follow the context (%)"] = _percent(relies.misled)
            figures["the same by chance (%)"] = _percent(relies.misled_by_chance)
        for name, cell in figures.items():
            lines.setdefault(name, []).append(cell)
    rows = [Row(name, tuple(cells)) for name, cells in lines.items() if len(cells) == len(named)]
    return Table("What was measured", "", [name for name, _ in named], rows)


def _share_table(title: str, corner: str, shares: dict[str, dict[str, float]], name: Callable[[str], str]) -> Table:
    keys = dict.fromkeys(key for share in shares.values() for key in share)
    rows = [Row(name(key), tuple(_percent(share.get(key, math.nan)) for share in shares.values())) for key in keys]
    return Table(title, corner, list(shares), rows)


def _gallery(title: str, one: ImageDiagnosis, samples: Sequence[int]) -> Gallery:
    return Gallery(title, [_thumbnail(one, sample) for sample in samples])


def _thumbnail(one: ImageDiagnosis, sample: int) -> Thumbnail:
    row, answer, context = one.rows[sample], one.predictions[sample], one.contexts[sample]
    pixels = one.images[sample][0].permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels)
    picture.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    where = GroupAccuracy(row.class_name, context, math.nan, 0).name
    taken = "" if answer == row.class_name else f", taken for {name_class(answer)}"
    return Thumbnail(stream.getvalue(), where, f"{where}{taken}")


def _percent(share: float) -> Cell:
    return _number(100 * share, 1)


def _number(value: float, digits: int) -> Cell:
    return Missing("not known") if math.isnan(value) else Number(value, digits=digits)


_READING = (
    "The usual context of a class is the one that goes with it in training: the dominant one of the protocol, or the "
    "one that is more frequent in the class than in the other classes.",
    "Effect of the usual context: how much more often a class is recognised there than elsewhere, when each class and "
    "each context may be hard in itself (least squares over the groups). Yes: at least 5 points and more than two "
    "standard errors. No: more than two standard errors below 5 points. Otherwise: cannot tell.",
    "Inferred contexts are groups of images that look similar in colours and textures, found without labels. Look at "
    "their pictures first: only you can say whether they are contexts.",
    "Unproven: nothing that was measured here shows that it would help.",
    "Wrong answers that follow the context: of the wrong answers to images in a context that is usual for other "
    "classes, those that name one of these classes.",
    "Features are what enters the last linear layer. R² says how well each is predicted from all the others by ridge "
    "regression, on images left out of the fit. Correlated features are no fault by themselves.",
)
