"""How well the context can be read from the features, and from which part of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pfdl.contexts._arrays import FloatArray, IndexArray, group_table

FOLDS = 5
PROBE_RIDGE = 0.1
"""λ/n of the probe, in units of the features' variance; fixed, not chosen by the figure that is reported."""

_WORTH_SPLITTING = 0.01


@dataclass(frozen=True)
class ContextReading:
    """How well a linear probe reads the context from the features. Shares of samples, on folds held out.

    Attributes:
        accuracy: From the features as they are.
        from_correlated: From their correlated parts alone, ũ.
        from_rest: From what is left, u − ũ. Both parts are linear in u, so a probe without a penalty could read much
            the same from either; these two say what a ridge probe reads, for which what is small hardly exists.
        from_label: What knowing the class alone gives: guess the most frequent context of the class. The chance level.
        correlated_share: Of the differences between the contexts' mean features (class for class), the part that lies
            in ũ, from 0 to 1; the rest lies in u − ũ. NaN if such differences make up less than a hundredth of the
            features' variance.
    """

    accuracy: float
    from_correlated: float
    from_rest: float
    from_label: float
    correlated_share: float


def read_context(observed: FloatArray, predicted: FloatArray, labels: IndexArray, contexts: IndexArray, seed: int) -> (
    ContextReading | None
):  # fmt: skip
    """Measure how well a linear probe reads the context, and from which part.

    Args:
        observed: u, the features centred and scaled, shape (n, v).
        predicted: ũ, shape (n, v).
        labels: Shape (n,), numbers from 0 on.
        contexts: Shape (n,), numbers from 0 on.
        seed: Of the folds.

    Returns:
        The reading; None if there are not two contexts with at least as many samples as there are folds.
    """
    from sklearn.linear_model import RidgeClassifier  # here, as it is half of what importing pfdl would take
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    enough = (np.bincount(contexts) >= FOLDS)[contexts]
    if len(np.unique(contexts[enough])) < 2 or not observed.shape[1]:
        return None
    u, correlated, labels, contexts = observed[enough], predicted[enough], labels[enough], contexts[enough]
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)

    def probe(part: FloatArray) -> float:
        model = RidgeClassifier(alpha=PROBE_RIDGE * len(part))
        return float(np.mean(cross_val_predict(model, part, contexts, cv=folds) == contexts))

    table = group_table(labels, contexts)
    return ContextReading(
        accuracy=probe(u),
        from_correlated=probe(correlated),
        from_rest=probe(u - correlated),
        from_label=float(table.max(axis=1).sum() / table.sum()),
        correlated_share=_share_between(u, correlated, labels, contexts),
    )


def _share_between(u: FloatArray, part: FloatArray, labels: IndexArray, contexts: IndexArray) -> float:
    """Return Σ ⟨part's deviation, u's deviation⟩ / Σ |u's deviation|² over classes and their contexts.

    A deviation is the mean in a context of a class less the mean of the class. As u = part + rest, the shares of part
    and rest add up to 1.
    """
    across = own = 0.0
    for label in np.unique(labels):
        here = labels == label
        for context in np.unique(contexts[here]):
            cell = here & (contexts == context)
            count = int(cell.sum())
            if count < 2:
                continue
            # Means of few samples scatter; those of different halves do so independently, and their product does not.
            halves = np.flatnonzero(cell)[::2], np.flatnonzero(cell)[1::2]
            of_u = [u[half].mean(axis=0) - u[here].mean(axis=0) for half in halves]
            of_part = [part[half].mean(axis=0) - part[here].mean(axis=0) for half in halves]
            own += count * float(of_u[0] @ of_u[1])
            across += count * float(of_part[0] @ of_u[1] + of_part[1] @ of_u[0]) / 2
    if own <= _WORTH_SPLITTING * float(np.sum(u**2)):
        return float("nan")
    return min(max(across / own, 0.0), 1.0)  # the halves' noise may carry an estimate beyond what a share can be
