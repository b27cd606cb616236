"""``pfdl diagnose``: one page about one or two trained models."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from PIL import Image

from pfdl._internal.runs import name_folders, read_run
from pfdl.contexts.groups import GroupAccuracy
from pfdl.diagnosis.verdict import CANNOT_TELL, NO, YES
from pfdl.report import provenance
from pfdl.report.blocks import Block, Gallery, Page, Section, SideBySide, Text, Thumbnail
from pfdl.report.diagnosis_features import Named, build_clusters, build_correlations, build_features, show_number
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl.vision.diagnosis import ImageDiagnosis, compare_diagnoses

WORST_GROUPS = 12
EXAMPLES = 10
THUMBNAILS = 12
THUMBNAIL_SIZE = 64
SHOWN_ERRORS = 2
"""Standard errors that the band of a curve shows."""

TONES = {YES: "yes", NO: "no", CANNOT_TELL: "unclear"}
"""The style of each answer: red, green and grey."""

_COUNTS = {"samples", "features", "constant features", "clusters of two or more", "features in the largest cluster"}
_R2 = {"R² of a feature from the others (median)", "the same within classes (median)"}


def build_page(
    diagnoses: Sequence[ImageDiagnosis], data: str, problems: list[str], options: Sequence[str] = ()
) -> Page:
    """Build the page.

    Args:
        diagnoses: One model, or two to compare.
        data: What the user called the data on the command line.
        problems: Sentences on what could not be read are added here.
        options: Further words of the command line that say how to read the data.

    Returns:
        The page, for :func:`pfdl.report.page.render`.
    """
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
    sections = [
        *(Section(f"What was found about {name}", _verdict(one, data, options)) for name, one in named),
        *_shift(named),
        *_examples(named),
        *([] if any(one.found.accuracies is None for one in diagnoses) else [_accuracy(named)]),
        Section("All figures", [_glance(named)]),
        build_features(named),
        build_correlations(named),
        build_clusters(named),
        _pictures(named),
        Section("How to read this page", [Text(words) for words in _READING]),
        provenance.build([read_run(one.folder) for one in diagnoses]),
    ]
    title = "Diagnosis of " + " and ".join(name for name, _ in named)
    return Page(title, introduction, sections)


def compare(named: Named) -> str:
    """Say which of two models relies more on the context."""
    (first, one), (second, other) = named
    return compare_diagnoses(one, other).sentence(first, second)


def _verdict(one: ImageDiagnosis, data: str, options: Sequence[str]) -> list[Block]:
    sentence, command = one.next_step(data, options)
    return [
        *(Text(words) for words in one.verdict()[1:]),
        Text(f"What to try next: {sentence}"),
        Text(command, "command"),
    ]


def _shift(named: Named) -> list[Section]:
    """Draw the accuracy to expect if the contexts shift."""
    series = [
        Series(
            name,
            curve.shift.round(3).tolist(),
            (100 * curve.accuracy).round(3).tolist(),
            (100 * SHOWN_ERRORS * curve.standard_error).round(3).tolist(),
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
        "two standard errors; how another training would end is not in it."
    )
    plot = Plot("Accuracy if the contexts shift", summary, "shift of the contexts", "accuracy (%)", series)
    return [Section("If the contexts shift", [plot])]


def _examples(named: Named) -> list[Section]:
    """Show images of the worst group, those that are not recognised first."""
    blocks: list[Block] = []
    for name, one in named:
        if one.found.accuracies is None:
            continue
        worst = one.found.accuracies.worst_group
        where = f"{worst.label} in {worst.context}" if worst.context else f"{worst.label}"
        title = f"{name}: {where}, {100 * worst.accuracy:.0f} % of {worst.samples} images recognised"
        blocks.append(Gallery(title, [_thumbnail(one, sample) for sample in one.worst_samples(EXAMPLES)]))
    return [Section("Examples of the worst group", blocks)] if blocks else []


def name_runs(diagnoses: Sequence[ImageDiagnosis]) -> Named:
    """Return the diagnoses with short names of their runs."""
    return list(zip(name_folders([one.folder for one in diagnoses]), diagnoses, strict=True))


def _glance(named: Named) -> Table:
    summaries = [one.found.summary() for _, one in named]
    rows = [
        Row(
            name if name in _COUNTS or name in _R2 or "|" in name else f"{name} (%)",
            tuple(_cell(name, summary[name]) for summary in summaries),
        )
        for name in summaries[0]
        if all(name in summary for summary in summaries)
    ]
    reliances = [one.found.reliance for _, one in named]
    if all(reliance is not None for reliance in reliances):
        known = [reliance for reliance in reliances if reliance is not None]
        measures = {
            "accuracy in the usual context of the class (%)": [one.in_usual for one in known],
            "accuracy elsewhere (%)": [one.elsewhere for one in known],
            "effect of the usual context (points)": [one.effect for one in known],
            "its standard error (points)": [one.effect_error for one in known],
            "wrong answers that follow the context (%)": [one.misled for one in known],
            "the same by chance (%)": [one.misled_by_chance for one in known],
        }
        rows += [Row(words, tuple(map(_percent, values))) for words, values in measures.items()]
    return Table("What was measured", "", [name for name, _ in named], rows)


def _accuracy(named: Named) -> Section:
    columns = [name for name, _ in named]
    found = [one.found.accuracies for _, one in named]
    accuracies = [one for one in found if one is not None]
    tables = []
    for corner, shares in (
        ("context", [one.by_context for one in accuracies]),
        ("class", [one.by_label for one in accuracies]),
    ):
        keys = sorted({key for share in shares for key in share})
        rows = [Row(key, tuple(_percent(share.get(key, math.nan)) for share in shares)) for key in keys]
        if rows:
            tables.append(Table(f"Accuracy (%) by {corner}", corner, columns, rows))
    groups: list[dict[tuple[str, str], GroupAccuracy]] = [
        {(group.label, group.context): group for group in one.groups} for one in accuracies
    ]
    worst = sorted(groups[0], key=lambda key: (groups[0][key].accuracy, key))[:WORST_GROUPS]
    rows = [
        Row(
            f"{label} in {context}" if context else label,
            (
                *(
                    _percent(group[label, context].accuracy if (label, context) in group else math.nan)
                    for group in groups
                ),
                Number(groups[0][label, context].samples, digits=0),
            ),
        )
        for label, context in worst
    ]
    by_class = [
        Table(
            f"{name}: what each class loses outside its usual context",
            "class",
            ["usual context", "accuracy there (%)", "accuracy elsewhere (%)", "loss (points)"],
            [
                Row(
                    str(line.label),
                    (str(line.usual_context), *map(_percent, (line.in_usual, line.elsewhere, line.loss))),
                )
                for line in one.found.reliance.by_class
            ],
        )
        for name, one in named
        if one.found.reliance is not None
    ]
    note = "The lowest first." if len(named) == 1 else f"The lowest of {columns[0]} first."
    worst_groups = Table("The worst groups: accuracy (%)", "group", [*columns, "images"], rows, note=note)
    return Section("Accuracy by class, context and group", [*by_class, worst_groups, SideBySide(tables)])


def _pictures(named: Named) -> Section:
    blocks: list[Block] = []
    for name, one in named:
        for which, samples in (
            ("most", one.found.most_correlated_samples(THUMBNAILS)),
            ("least", one.found.least_correlated_samples(THUMBNAILS)),
        ):
            pictures = [_thumbnail(one, sample) for sample in samples.tolist()]
            blocks.append(Gallery(f"{name}: images whose features are {which} predictable from each other", pictures))
    return Section("Images that carry the most and the least correlated part", blocks)


def _thumbnail(one: ImageDiagnosis, sample: int) -> Thumbnail:
    row, answer, context = one.rows[sample], one.predictions[sample], one.contexts[sample]
    pixels = one.images[sample][0].permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels)
    picture.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    where = f"{row.class_name} in {context}" if context else row.class_name
    taken = "" if answer == row.class_name else f", taken for {answer}"
    return Thumbnail(stream.getvalue(), where, f"{where}{taken}")


def _cell(name: str, value: float) -> Cell:
    if name in _COUNTS:
        return Number(value, digits=0)
    return show_number(value) if name in _R2 or "|" in name else _percent(value)


def _percent(share: float) -> Cell:
    return Missing("not known") if math.isnan(share) else Number(100 * share, digits=1)


_READING = (
    "The usual context of a class is the one that goes with it in training: the dominant one of the protocol, or the "
    "one that is more frequent in the class than in the other classes.",
    "Effect of the usual context: how much more often a class is recognised there than elsewhere, when each class and "
    "each context may be hard in itself (least squares over the groups). Yes: at least 5 points and more than two "
    "standard errors. No: more than two standard errors below 5 points. Otherwise: cannot tell.",
    "Inferred contexts are groups of images that look similar in colours and textures, found without labels.",
    "Wrong answers that follow the context: of the wrong answers to images in a context that is usual for other "
    "classes, those that name one of these classes.",
    "Features are what enters the last linear layer. The correlated part of a feature is its prediction from all other "
    "features by ridge regression, on images left out of the fit; R² is the share of its variance that this explains. "
    "A network in place of the regression could explain more. Correlated features are no fault by themselves.",
    "Ratio: R² within classes over R². Near 0, features correlate because they all follow the class. Near 1, they "
    "correlate whatever the class: what they share is something else, such as the context.",
    "After: the partial correlation of two features given all others. If one of two features were predicted with the "
    "help of the other, what is left of both would correlate by just this, with the opposite sign.",
    "Contexts read: accuracy of a linear probe (ridge, five folds). The correlated part and the rest are both linear "
    "in the features, so a probe without a penalty could read much the same from either; with one, what is small "
    "hardly counts.",
)
