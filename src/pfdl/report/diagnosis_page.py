"""``pfdl diagnose``: one page about one or two trained models."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence

from PIL import Image

from pfdl._internal.runs import read_run
from pfdl.diagnosis.contexts import GroupAccuracy
from pfdl.report.blocks import Block, Gallery, Page, Section, SideBySide, Text, Thumbnail
from pfdl.report.diagnosis_features import Named, build_clusters, build_correlations, build_features, show_number
from pfdl.report.sections import provenance
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl.vision.diagnosis import ImageDiagnosis

WORST_GROUPS = 12
THUMBNAILS = 12
THUMBNAIL_SIZE = 64

_COUNTS = {"samples", "features", "constant features", "clusters of two or more", "features in the largest cluster"}
_R2 = {"R² of a feature from the others (median)", "the same within classes (median)"}


def build_page(diagnoses: Sequence[ImageDiagnosis], problems: list[str]) -> Page:
    """The page.

    Args:
        diagnoses: One model, or two to compare.
        problems: Sentences on what could not be read are added here.

    Returns:
        The page, for :func:`pfdl.report.page.render`.
    """
    names = name_runs(diagnoses)
    same_images = all(one.rows == diagnoses[0].rows for one in diagnoses)
    introduction: list[Block] = [
        Text(
            f"{'Does this model' if len(diagnoses) == 1 else 'Do these models'} rely on the context? Measured on "
            f"{' and '.join(str(n) for n in dict.fromkeys(len(one.rows) for one in diagnoses))} test images, which "
            "took no part in training."
        )
    ]
    if not same_images:
        introduction.append(
            Text("The two runs have different test images: differences are also those of the images.", "warning")
        )
    named = list(zip(names, diagnoses, strict=True))
    sections = [
        Section(f"Verdict on {name}", [Text(words) for words in one.verdict()[1:]], one.verdict()[0])
        for name, one in named
    ]
    sections += [
        Section("At a glance", [_glance(named)], _comparison(named)),
        *([] if any(one.found.accuracies is None for one in diagnoses) else [_accuracy(named)]),
        build_features(named),
        build_correlations(named),
        build_clusters(named),
        _pictures(named),
        Section("How to read this page", [Text(words) for words in _READING]),
        provenance.build([read_run(one.folder) for one in diagnoses], problems),
    ]
    title = "Diagnosis of " + " and ".join(names)
    return Page(title, introduction, sections)


def name_runs(diagnoses: Sequence[ImageDiagnosis]) -> list[str]:
    """Short names of the runs; the whole paths where the short ones are equal."""
    short = [one.folder.resolve().name for one in diagnoses]
    return short if len(set(short)) == len(short) else [str(one.folder) for one in diagnoses]


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
    leanings = [one.leaning for _, one in named]
    if all(leaning is not None for leaning in leanings):
        known = [leaning for leaning in leanings if leaning is not None]
        measures: list[tuple[str, Callable[[int], float]]] = [
            ("accuracy in the dominant context of the class (%)", lambda i: known[i].at_home),
            ("accuracy elsewhere (%)", lambda i: known[i].elsewhere),
            ("wrong answers that follow the context (%)", lambda i: known[i].misled),
            ("the same by chance (%)", lambda i: known[i].misled_by_chance),
        ]
        rows += [Row(words, tuple(_percent(value(i)) for i in range(len(known)))) for words, value in measures]
    return Table("What was measured", "", [name for name, _ in named], rows)


def _comparison(named: Named) -> str:
    """What a comparison of two comes to, where the contexts are known."""
    lost = [
        f"{name} {100 * (leaning.at_home - leaning.elsewhere):.1f} ± {100 * leaning.standard_error:.1f}"
        for name, one in named
        if (leaning := one.leaning) is not None
    ]
    return f"Points of accuracy lost outside the dominant context: {', '.join(lost)}." if len(lost) > 1 else ""


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
    note = "The lowest first." if len(named) == 1 else f"The lowest of {columns[0]} first."
    worst_groups = Table("The worst groups: accuracy (%)", "group", [*columns, "images"], rows, note=note)
    return Section("Accuracy by context and group", [SideBySide(tables), worst_groups])


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
    row, answer = one.rows[sample], one.predictions[sample]
    pixels = one.images[sample][0].permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels)
    picture.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    where = f"{row.class_name} in {row.context}" if row.context else row.class_name
    taken = "" if answer == row.class_name else f", taken for {answer}"
    return Thumbnail(stream.getvalue(), where, f"{where}{taken} ({one.found.correlated_part[sample]:.3f})")


def _cell(name: str, value: float) -> Cell:
    if name in _COUNTS:
        return Number(value, digits=0)
    return show_number(value) if name in _R2 or "|" in name else _percent(value)


def _percent(share: float) -> Cell:
    return Missing("not known") if math.isnan(share) else Number(100 * share, digits=1)


_READING = (
    "Features are what enters the last linear layer. The correlated part of a feature is its prediction from all other "
    "features by ridge regression, on images left out of the fit; R² is the share of its variance that this explains. "
    "A network in place of the regression could explain more.",
    "Ratio: R² within classes over R². Near 0, features go along because they all follow the class. Near 1, they go "
    "along whatever the class: what they share is something else, such as the context.",
    "After: the partial correlation of two features given all others. If one of two features were predicted with the "
    "help of the other, what is left of both would correlate by just this, with the opposite sign.",
    "The number below an image is the length of the correlated part of its features relative to that of the features.",
    "Context read: accuracy of a linear probe (ridge, five folds). The correlated part and the rest are both linear in "
    "the features, so a probe without a penalty could read much the same from either; with one, what is small "
    "hardly counts.",
    "Wrong answers that follow the context: of the wrong answers to images in a context that is dominant for other "
    "classes in training, those that name one of these classes. This and the accuracy in and outside the dominant "
    "context are what the model does; all else on this page describes its features, and correlated features "
    "are no fault by themselves.",
)
