"""Contexts of all samples from some whose contexts are known, such as a validation set."""

from __future__ import annotations

from typing import Any

import numpy as np

from pfdl.contexts._arrays import as_array, as_numbers
from pfdl.contexts.inference import InferredContexts
from pfdl.contexts.probe import equal_groups
from pfdl.contexts.sources import ArrayFeatures

CONFIDENT = 0.95
"""From this probability on a context counts as known in the second fit."""


def spread_contexts(
    features: Any, labels: Any, *, known_features: Any, known_labels: Any, known_contexts: Any
) -> InferredContexts:
    """Infer contexts from some samples whose contexts are known, after SSA.

    SSA (spread spurious attribute; Nam et al., 2022) trains a network to tell the contexts; this takes the features of
    one. A logistic regression learns the contexts of the known samples, all groups counting the same, and is fitted
    again with the samples of whose context it is sure. Nothing is checked.

    Args:
        features: Of the samples whose contexts are wanted, shape (n, p).
        labels: Their classes, shape (n,).
        known_features: The same features of samples whose contexts are known, shape (m, p).
        known_labels: Their classes, shape (m,).
        known_contexts: Their contexts, shape (m,), numbers or names.

    Returns:
        The contexts of the n samples, numbered in the sorted order of the known ones.

    Raises:
        ValueError: If the shapes do not fit, or fewer than two contexts are known.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x, known_x = as_array(features), as_array(known_features)
    context = as_numbers("known_contexts", known_contexts)
    if x.shape[1:] != known_x.shape[1:] or len(known_x) != len(context):
        raise ValueError(
            f"features have shape {x.shape}, known_features {known_x.shape} and known_contexts {context.shape}; give "
            "(n, p), (m, p) and (m,)."
        )
    if len(np.unique(context)) < 2:
        raise ValueError("fewer than two contexts are known, so there is nothing to tell apart.")
    source = ArrayFeatures(np.concatenate([known_x, x]), np.concatenate([as_array(known_labels), as_array(labels)]))
    z = StandardScaler().fit_transform(source.take(np.arange(len(source))))
    known = np.arange(len(source)) < len(context)
    believed = np.concatenate([context, np.zeros(len(x), dtype=context.dtype)])
    for _ in range(2):
        weight = equal_groups(source.labels[known], believed[known])
        fit = LogisticRegression(max_iter=1000).fit(z[known], believed[known], sample_weight=weight / weight.mean())
        believed[len(context) :] = fit.predict(z[len(context) :])
        known[len(context) :] = fit.predict_proba(z[len(context) :]).max(axis=1) >= CONFIDENT
    sentence = f"The contexts of {len(context)} samples were spread to {len(x)}; {known.sum() - len(context)} are sure."
    return InferredContexts(believed[len(context) :].astype(np.intp), "spread", sentence)
