"""The parts of a diagnosis that are about features: ranked, correlated, clustered."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pfdl.diagnosis.clusters import NO_CLUSTER, shrink
from pfdl.diagnosis.result import known_median
from pfdl.report.blocks import Block, Section, SideBySide, Text
from pfdl.report.heatmaps import Heatmap
from pfdl.report.plots import Plot, Series
from pfdl.report.tables import Cell, Missing, Number, Row, Table
from pfdl.vision.diagnosis import ImageDiagnosis

Named = Sequence[tuple[str, ImageDiagnosis]]

MOST_CELLS = 256
"""A heatmap with more rows than this shows means of neighbours."""

TOP_FEATURES = 20
TOP_CLUSTERS = 10
_FRAME_FROM = 0.02
"""The part of a heatmap from which on a cluster gets a frame."""


def build_features(named: Named) -> Section:
    """Show the R² of all features as a curve, and the first of them as a table."""
    series = []
    for number, (name, one) in enumerate(named):
        for kind, values in (("", one.found.r2), (", within classes", one.found.r2_within_class)):
            ranked = np.sort(values[~np.isnan(values)])[::-1]
            place = (np.arange(len(ranked)) + 1) * 100 / max(len(ranked), 1)
            colour = 2 * number + bool(kind) + 1
            line = Series(name + kind, place.round(2).tolist(), ranked.round(5).tolist(), style="lines", colour=colour)
            series.append(line)
    plot = Plot(
        "How predictable the features are from each other",
        "Features from the most to the least predictable. Where the line within classes stays close to the other, the "
        "features share more than the class.",
        "features (%)",
        "R² on images left out",
        series,
        digits=4,
        with_table=False,
    )
    tables = [_ranking(name, one) for name, one in named]
    return Section("Features, ranked", [plot, SideBySide(tables) if len(tables) > 1 else tables[0]])


def _ranking(name: str, one: ImageDiagnosis) -> Table:
    found = one.found
    rows = [
        Row(
            str(feature),
            (
                show_number(found.r2[feature]),
                show_number(found.r2_within_class[feature]),
                show_number(found.within_ratio[feature]),
                Number(int(found.clusters[feature]), digits=0) if found.clusters[feature] != NO_CLUSTER else Missing(),
            ),
        )
        for feature in found.ranking[:TOP_FEATURES].tolist()
    ]
    columns = ["R²", "within classes", "ratio", "cluster"]
    return Table(f"The most predictable features of {name}", "feature", columns, rows)


def build_correlations(named: Named) -> Section:
    """Show the heatmaps, before and after."""
    blocks: list[Block] = [
        SideBySide(
            [
                draw_correlation(one, after=False, title=f"{name}, before"),
                draw_correlation(one, after=True, title=f"{name}, after"),
            ]
        )
        for name, one in named
    ]
    return Section("Correlations before and after", blocks)


def draw_correlation(one: ImageDiagnosis, *, after: bool, title: str) -> Heatmap:
    """Draw |correlations| of the features, or what is left of them, in the order of the clusters."""
    found = one.found
    matrix = found.remaining_correlation if after else found.correlation
    order = found.order
    values, starts = shrink(np.abs(matrix[np.ix_(order, order)]), MOST_CELLS)
    ends = [*starts[1:].tolist(), len(order)]
    names = [_called(order[a:b].tolist()) for a, b in zip(starts.tolist(), ends, strict=True)]
    clusters = found.clusters[order][starts]
    sizes = np.bincount(clusters) if len(clusters) else np.zeros(0, dtype=np.intp)
    first = np.cumsum(sizes) - sizes
    frames = [
        (int(a), int(a + size - 1))
        for a, size in zip(first, sizes, strict=True)
        if 1 < size >= _FRAME_FROM * len(values)
    ]
    grouped = (
        f", each cell the mean of about {round(len(order) / len(starts))} by as many"
        if len(starts) < len(order)
        else ""
    )
    what = (
        "What two features still have in common once all others are taken away from both (partial correlation)"
        if after
        else "How strongly two features are correlated"
    )
    return Heatmap(title, f"{what}, from 0 to 1, without the sign{grouped}.", values, names, frames)


def _called(features: list[int]) -> str:
    if len(features) == 1:
        return f"feature {features[0]}"
    return f"features {', '.join(map(str, features[:4]))}{', …' if len(features) > 4 else ''}"


def build_clusters(named: Named) -> Section:
    """Show the largest clusters."""
    blocks: list[Block] = [
        Text("Features are in one cluster where their correlations are, on average, stronger than 0.5, of either sign.")
    ]
    for name, one in named:
        found = one.found
        rows = []
        for cluster in range(min(int(found.clusters.max(initial=NO_CLUSTER)) + 1, TOP_CLUSTERS)):
            members = np.flatnonzero(found.clusters == cluster)
            inside = np.abs(found.correlation[np.ix_(members, members)])[~np.eye(len(members), dtype=bool)]
            rows.append(
                Row(
                    str(cluster),
                    (
                        Number(len(members), digits=0),
                        show_number(float(inside.mean()) if inside.size else math.nan),
                        show_number(known_median(found.r2[members])),
                        show_number(known_median(found.within_ratio[members])),
                    ),
                )
            )
        columns = ["features", "mean |correlation|", "R² (median)", "ratio within classes (median)"]
        blocks.append(Table(f"The largest clusters of {name}", "cluster", columns, rows))
    return Section("How the features cluster", blocks)


def show_number(value: float) -> Cell:
    """Return a cell with four decimals, for R² may be close to 1; or a missing one."""
    return Missing("not known") if math.isnan(value) else Number(float(value), digits=4)
