"""Whether contexts are to be believed: stable, associated with the class, and such that balancing
them helps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pfdl.contexts._arrays import FloatArray, IndexArray, group_table
from pfdl.contexts.finders import DEFAULT_DEMANDS, Demands
from pfdl.contexts.probe import equal_groups, held_out_predictions, spread
from pfdl.contexts.sampling import stratified_rows

if TYPE_CHECKING:
    from pfdl.contexts.misled import Mistakes

SPLITS = 3
"""Random halvings of the samples over which held-out accuracies are averaged."""

ERRORS_SURE = 3.0
"""That the gain is no larger than what is demanded must be refuted by so many standard errors, over
the same samples, and so must be that a short training is as good in unusual groups as in usual
ones: by chance one in 700 passes. The size that matters was chosen on 16 splits of PACS with
features of a pretrained network (gains less three errors, within classes: at least 1 point in
13) and on data without contexts: its single styles, made-up features, and clothes (mostly less)."""

CHANCE = 1e-3
"""Contexts are associated with the class if independent ones would look so with a smaller
probability.
"""

LEAST_UNUSUAL = 10
"""With fewer samples in unusual groups nothing can be measured there."""

STRAYS = 5
LEAST_SHARED = 2 / 3
"""A context is shared if more than half of the classes have samples in it, so many of them beside
those of its most frequent class. At least this share of all samples must be in shared ones: what
one class alone has is a kind of that class, not a context, and kinds of two classes may look alike
by chance."""

WHOLE_GROUP = 10
"""Groups count equally in the average, those with fewer samples in proportion: one sample says
little about a group.
"""


@dataclass(frozen=True)
class Trial:
    """What one finder proposed, and whether it is believed.

    Attributes:
        method: The finder: ``"pooled"``, ``"within"``, ``"early"``, ``"given"`` for contexts of
            your own, or another.
        number: How many contexts it found.
        stability: How well contexts by two random halves of the features agree, 1 if fully; NaN if
            they do not come from the features.
        association: Cramér's V of context and class: 0 if independent, 1 if one follows from the
            other.
        usual: Held-out accuracy of a short training in usual groups; NaN where it was not measured.
        unusual: The same in unusual groups: a class in a context that it has less often than other
            classes.
        average: The same, averaged over all groups: the accuracy if class and context were
            independent.
        balanced_average: The same as ``average`` if the training draws all groups equally often.
        gain: What balancing adds to the average.
        gain_error: The standard error of the gain.
        accepted: Whether all checks hold.
        reason: The check that failed, or why these contexts are believed, as the end of a sentence.
        description: What the features were: ``"features"``, ``"statistics"`` or ``"positions"``.
    """

    method: str
    number: int
    stability: float
    association: float = float("nan")
    usual: float = float("nan")
    unusual: float = float("nan")
    average: float = float("nan")
    balanced_average: float = float("nan")
    gain: float = float("nan")
    gain_error: float = float("nan")
    accepted: bool = False
    reason: str = ""
    description: str = ""


def errors_for_tries(tries: int) -> float:
    """Return by how many standard errors each of several tries must be sure, so that by chance one
    of them passes no oftener than a single one by ``ERRORS_SURE``.
    """
    from scipy.stats import norm

    return float(norm.isf(norm.sf(ERRORS_SURE) / tries))


def confirm(
    method: str,
    stability: float,
    z: FloatArray,
    y: IndexArray,
    context: IndexArray,
    *,
    demands: Demands = DEFAULT_DEMANDS,
    counts: NDArray[np.int64] | None = None,
    sure: float = ERRORS_SURE,
    seed: int = 0,
) -> Trial:
    """Check contexts that are stable; the first check that fails is the reason.

    Args:
        method: The finder that proposed them.
        stability: How well contexts by halves of the features agree; NaN if they do not come from
            the features.
        z: Standardised features of the samples to judge by, shape (m, p).
        y: Their classes, shape (m,).
        context: Their contexts, shape (m,).
        demands: What is asked of contexts by this finder. Where class and context are independent,
            features that hold nothing of the class but its context leave any training at chance:
            then nothing is gained.
        counts: Samples of each class in each context, of all data, shape (classes, contexts); by
            default these are all.
        sure: By how many standard errors the last two checks must hold.
        seed: Seed of the halvings.
    """
    counts = group_table(y, context) if counts is None else counts
    trial = Trial(method, int((counts.sum(axis=0) > 0).sum()), stability)
    if trial.number < 2:
        return replace(trial, reason="they are all one")
    association, chance = cramers_v(counts)
    unusual = ~usual_groups(counts)[y, context]
    trial = replace(trial, association=association)
    if demands.are_mistakes:
        return _confirm_mistakes(trial, z, y, context, counts, seed)
    if objection := _objection(counts, association, chance, unusual):
        return replace(trial, reason=objection)
    group = y * counts.shape[1] + context
    if demands.errors_are_one_group:
        group = unusual.astype(np.intp)
    share = average_shares(group)
    plain, balanced = _short_trainings(z, y, context, counts, share, demands.gain, seed)
    # The shortest is too short: there anything seems to help
    best = int(np.argmax(((balanced - plain) @ share)[:-1]))
    trial = _with_figures(trial, plain[best], balanced[best], share, unusual)
    averaged = "averaged over groups"
    if demands.errors_are_one_group:
        averaged = "averaged over usual and unusual groups"
    objection = _not_misled(trial, plain[best], unusual, sure)
    objection = objection or _no_gain(trial, demands.gain, averaged, sure)
    return _settle(trial, objection, averaged)


def _confirm_mistakes(
    trial: Trial,
    z: FloatArray,
    y: IndexArray,
    context: IndexArray,
    counts: NDArray[np.int64],
    seed: int,
) -> Trial:
    """Check contexts into which a short training mistakes samples."""
    from pfdl.contexts import misled

    if objection := _objection_to_mistakes(counts, trial.association, misled.LEAST_ASSOCIATION):
        return replace(trial, reason=objection)
    unusual = ~usual_groups(counts)[y, context]
    rows = stratified_rows(y * 2 + unusual, misled.FITTED, np.random.default_rng(seed))
    found = misled.measure_mistakes(z[rows], y[rows], context[rows])
    unusual = unusual[rows]
    share = average_shares(unusual.astype(np.intp))
    before, after = found.before.astype(np.float64), found.after.astype(np.float64)
    trial = _with_figures(trial, before, after, share, unusual)
    averaged = "averaged over usual and unusual groups"
    cost = float((before - after)[~unusual].mean())
    objection = _objection_to_what_they_share(found) or _are_wrong_labels(found.told, cost)
    objection = objection or _no_gain(trial, 0.0, averaged, misled.LEAST_SURE)
    return _settle(trial, objection, averaged)


def _objection_to_mistakes(counts: NDArray[np.int64], association: float, least: float) -> str:
    """Say what of the counts alone speaks against contexts of mistaken samples; empty if nothing
    does.
    """
    if association < least:
        return (
            f"they go too little with the class (Cramér's V {association:.2f}; {least} is needed)"
        )
    unusual = (counts * ~usual_groups(counts)).sum(axis=1)
    classes = np.count_nonzero(counts.sum(axis=1))
    if (having := np.count_nonzero(unusual >= STRAYS)) <= classes / 2:
        return f"only {having} of {classes} classes have {STRAYS} samples in unusual groups"
    if unusual.sum() < LEAST_UNUSUAL:
        return f"only {unusual.sum()} samples are in unusual groups, too few to judge by"
    return ""


def _objection_to_what_they_share(found: Mistakes) -> str:
    """Say that classes share no context, or none that misleads; empty if they do."""
    from pfdl.contexts import misled

    if not found.shared >= misled.LEAST_SHARED:
        return (
            "what tells them in some classes does not tell them in the others (area under the"
            f" curve {found.shared:.2f}; {misled.LEAST_SHARED} is needed)"
        )
    usual = found.missed_usual
    if found.missed < max(misled.MISLED_TIMES * usual, usual + misled.LEAST_MISLED):
        return (
            "a longer training is not misled by them: it gets"
            f" {100 * found.missed:.0f} % wrong in the context of another class and"
            f" {100 * usual:.0f} % elsewhere"
        )
    return ""


def _are_wrong_labels(told: float, cost: float) -> str:
    """Say that samples are rather of the class that they are taken for; empty if they are not."""
    from pfdl.contexts import misled

    if not told >= misled.LEAST_TOLD:
        return (
            "they can hardly be told from the class that they are taken for, as wrong labels"
            f" cannot (area under the curve {told:.2f}; {misled.LEAST_TOLD} is needed)"
        )
    if cost > misled.MOST_COST:
        return (
            f"balancing them costs {100 * cost:.0f} points in usual groups, as wrong labels do"
            f" ({100 * misled.MOST_COST:.0f} at most)"
        )
    return ""


def _settle(trial: Trial, objection: str, averaged: str) -> Trial:
    """Reject a trial for an objection; accept it where there is none."""
    if objection:
        return replace(trial, reason=objection)
    return replace(trial, accepted=True, reason=_why_accepted(trial, averaged))


def _with_figures(
    trial: Trial,
    before: FloatArray,
    after: FloatArray,
    share: FloatArray,
    unusual: NDArray[np.bool_],
) -> Trial:
    """Add what a short training gets right, plain and with equal groups, to a trial."""
    return replace(
        trial,
        usual=float(before[~unusual].mean()),
        unusual=float(before[unusual].mean()),
        average=float(before @ share),
        balanced_average=float(after @ share),
        gain=float((after - before) @ share),
        gain_error=_standard_error(after - before, share, unusual),
    )


def _not_misled(trial: Trial, right: FloatArray, unusual: NDArray[np.bool_], sure: float) -> str:
    """Say that a short training is as good in unusual groups as in usual ones; empty if not."""
    variances = (right[part].var() / part.sum() for part in (unusual, ~unusual))
    error = float(np.sqrt(sum(variances)))
    if trial.usual - trial.unusual >= sure * error:
        return ""
    return (
        f"a short training is not misled by them: it gets {100 * trial.unusual:.0f} % right in"
        f" unusual groups and {100 * trial.usual:.0f} % in usual"
    )


def _no_gain(trial: Trial, least: float, averaged: str, sure: float) -> str:
    """Say that drawing all groups equally often does not surely help; empty if it does."""
    needed = least + sure * trial.gain_error
    if trial.gain >= needed:
        return ""
    return (
        f"balancing them changes the held-out accuracy, {averaged}, by {100 * trial.gain:+.1f}"
        f" ± {100 * trial.gain_error:.1f} points, and {100 * needed:.1f} are needed"
    )


def _why_accepted(trial: Trial, averaged: str) -> str:
    """Say why contexts are believed, as the end of a sentence."""
    found = f"halves of the features agree on them ({trial.stability:.2f}), they go"
    if np.isnan(trial.stability):
        found = "they go"
    return (
        f"{found} with the class (Cramér's V {trial.association:.2f}), a short training is misled"
        f" by them ({100 * trial.usual:.0f} % of held-out samples right in usual groups,"
        f" {100 * trial.unusual:.0f} % in unusual), and drawing all groups equally often helps"
        f" ({averaged}, {100 * trial.balanced_average:.0f} % instead of"
        f" {100 * trial.average:.0f} %)"
    )


def _objection(
    counts: NDArray[np.int64], association: float, chance: float, unusual: NDArray[np.bool_]
) -> str:
    """Say what of the counts alone speaks against contexts; empty if nothing does."""
    if chance > CHANCE:
        return f"they do not go with the class (Cramér's V {association:.2f})"
    strays = counts.sum(axis=0) - counts.max(axis=0)
    held_by = (counts > 0).sum(axis=0)
    shared = (strays >= STRAYS) & (held_by > np.count_nonzero(counts.sum(axis=1)) / 2)
    if (share := counts[:, shared].sum() / counts.sum()) < LEAST_SHARED:
        return f"only {100 * share:.0f} % of the samples are in contexts that most classes share"
    if min(int(unusual.sum()), int((~unusual).sum())) < LEAST_UNUSUAL:
        return f"only {int(unusual.sum())} samples are in unusual groups, too few to judge by"
    return ""


def cramers_v(counts: NDArray[Any]) -> tuple[float, float]:
    """Return Cramér's V of a table of counts, and the chance of so large a χ² under
    independence.
    """
    from scipy.stats import chi2_contingency

    table = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    least = min(table.shape) - 1
    if least < 1:
        return 0.0, 1.0
    found = chi2_contingency(table, correction=False)
    return float(np.sqrt(found.statistic / table.sum() / least)), float(found.pvalue)


def usual_groups(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each class and context whether the class has this context more often than all
    classes together.
    """
    of_class = counts.sum(axis=1, keepdims=True)
    of_context = counts.sum(axis=0)
    return np.asarray(counts * counts.sum() > of_class * of_context)


def average_shares(group: IndexArray) -> FloatArray:
    """Return the share of each sample in an average over groups, shape (m,)."""
    share = 1.0 / np.bincount(group)[group].clip(min=WHOLE_GROUP)
    return np.asarray(share / share.sum())


def _standard_error(change: FloatArray, share: FloatArray, unusual: NDArray[np.bool_]) -> float:
    """Return the standard error of an average; usual and unusual groups each vary about a mean of
    their own.
    """
    rest = change.copy()
    for part in (unusual, ~unusual):
        rest[part] -= np.average(change[part], weights=share[part])
    return float(np.sqrt((share * rest) @ (share * rest)))


def _short_trainings(
    z: FloatArray,
    y: IndexArray,
    context: IndexArray,
    counts: NDArray[np.int64],
    share: FloatArray,
    least: float,
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """Return how often a training gets each held-out sample right, plain and with equal groups,
    shape (ridges, m).

    Where balancing gains less than ``least`` in the first halvings, the others are left out.
    """
    classes, number = counts.shape
    # Of a group of which only some samples are here, each stands for several: plain training has
    # the true shares.
    stands_for = counts[y, context] / group_table(y, context)[y, context]
    weights = stands_for / counts.sum(axis=1)[y], equal_groups(y, context)
    rng = np.random.default_rng(seed)
    right = []
    for _ in range(SPLITS):
        fold = spread(y * number + context, rng)
        right.append(
            [held_out_predictions(z, y, fold, weight, classes)[0] == y for weight in weights]
        )
        before, after = np.mean(right, axis=0)
        if ((after - before) @ share)[:-1].max() < least:
            break
    return before, after
