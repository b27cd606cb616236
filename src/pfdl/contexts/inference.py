"""The context of each sample, inferred from features or images and class labels; no context labels
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pfdl._internal.validation import check_choice, check_count, check_number
from pfdl.contexts._arrays import FloatArray, IndexArray, group_table
from pfdl.contexts.candidates import (
    LEAST_FEATURES,
    SETTLED,
    Candidate,
    find_clusters,
    rows_to_cluster,
    stratified_rows,
    train_shortly,
)
from pfdl.contexts.clusters import PooledClusters, WithinClusters
from pfdl.contexts.confirmation import Trial, confirm
from pfdl.contexts.probe import one_thread
from pfdl.contexts.ridge import CONSTANT
from pfdl.contexts.sources import Describe, Features, open_features

METHODS = ("auto", "pooled", "within", "early")

MOST_SAMPLES = 20_000
"""Contexts are found and judged by so many samples; what is held in memory does not grow beyond
them.
"""

MOST_FEATURES = 512
"""Of more features so many are drawn: a context that moves many features is seen in these too."""

LEAST_AGREEMENT = {"pooled": SETTLED, "within": 0.5, "early": 0.8}
"""Halves of the features must agree at least so well. Clusters over all classes may be classes that
look alike; they count only where they are clearly apart. 0.5 is halfway between chance and full
agreement."""

LEAST_CLASS = 10
"""At least two classes must have so many samples."""

UNCHECKED = "nothing was checked"

_NAMES = {
    "pooled": "clusters over all classes",
    "within": "clusters within classes",
    "early": "the classes that a short training predicts",
}


@dataclass(frozen=True, eq=False)
class InferredContexts:
    """Contexts, and why they are believed.

    Attributes:
        contexts: The context of each sample, shape (n,), from 0; all 0 where no contexts were
            confirmed.
        method: The way in which they were found, or ``"none"``.
        sentence: What was tried, what was found and why it is believed, for a person to read.
        tried: One entry for each way that was tried.
        draws: For contexts by a network's outputs, how often each sample is drawn relative to the
            others, shape (n,), by the method's own rule:
            ``torch.utils.data.WeightedRandomSampler(found.draws, len(found.draws))``.
    """

    contexts: IndexArray
    method: str
    sentence: str
    tried: tuple[Trial, ...] = ()
    draws: FloatArray | None = None

    @property
    def number(self) -> int:
        """Return how many contexts there are."""
        return int(self.contexts.max(initial=0)) + 1

    def to_dict(self) -> dict[str, Any]:
        """Return how many there are, how they were found and why they are believed, as what JSON
        can hold.
        """
        return {"number": self.number, "method": self.method, "sentence": self.sentence}


def infer_contexts(
    features: Any,
    labels: Any = None,
    *,
    method: Literal["auto", "pooled", "within", "early"] = "auto",
    num_contexts: int | None = None,
    confirmation: float = 0.5,
    describe: Describe | None = None,
    seed: int = 0,
) -> IndexArray:
    """Infer the context of each sample from features or images and class labels alone.

    Contexts count only if they can be confirmed: random halves of the features agree on them, they
    go with the class, a short training is misled by them, and one that draws their groups equally
    often does better on held-out samples. Otherwise all samples are in one context, and balancing
    changes nothing. :func:`pfdl.contexts.find_contexts` says why.

    Give features of a pretrained network, or images, which are described by
    :func:`pfdl.image_statistics`. Features of a network that was trained on these labels are no
    good: within a class they soon say more of the object than of the context. What is in memory at
    a time is a block of samples and a sample of 20,000, whatever n is.

    Args:
        features: Features, shape (n, p); or images, shape (n, channels, height, width); or a
            ``Dataset`` or ``DataLoader`` of (features or image, label, …). A loader's order does
            not matter: contexts come in the order of its dataset.
        labels: The classes, shape (n,), numbers or names, or one-hot rows; not needed if the
            dataset gives them.
        method: ``"pooled"``, clusters over all samples; ``"within"``, groups within classes of what
            features predict of each other; ``"early"``, the class that a short training predicts;
            or ``"auto"``: the first of these that is confirmed.
        num_contexts: Number of clusters; by default that of 2 to 12 on which halves of the features
            agree best, or a larger one that passes the checks, too. Only clusters are tried if it
            is given.
        confirmation: How well halves of the features must agree, 0 to 1: the adjusted Rand index of
            clusters, or of what a short training gets wrong the share on which both halves give the
            same wrong class. At least 0.95 is needed of clusters over all samples, 0.5 of groups
            within classes and 0.8 of a short training; a larger value raises these. With 0 nothing
            is checked and the most stable contexts are returned.
        describe: From a batch of images to features, shape (n, p), for instance a pretrained
            network.
        seed: Seed of samples, halves and clusters.

    Returns:
        The context of each sample, shape (n,), numbered from 0.

    Raises:
        TypeError, ValueError: If the arrays do not fit or a setting is out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(2, size=600)
        >>> true = np.where(
        ...     rng.random(600) < 0.9, labels, 1 - labels
        ... )  # each class mostly in a context of its own
        >>> features = rng.normal(size=(600, 12))
        >>> features[:, :6] += 3.0 * true[:, None]  # six features move with the context,
        >>> features[:, 6:] += 0.7 * labels[:, None]  # six a little with the class
        >>> found = infer_contexts(features, labels)
        >>> bool(abs(np.corrcoef(found, true)[0, 1]) > 0.95)
        True
    """
    return find_contexts(
        features,
        labels,
        method=method,
        num_contexts=num_contexts,
        confirmation=confirmation,
        describe=describe,
        seed=seed,
    ).contexts


def find_contexts(
    features: Any,
    labels: Any = None,
    *,
    method: str = "auto",
    num_contexts: int | None = None,
    confirmation: float = 0.5,
    describe: Describe | None = None,
    seed: int = 0,
) -> InferredContexts:
    """Infer contexts as :func:`infer_contexts` does, and say what was tried and why the result is
    believed.

    The arguments are those of :func:`infer_contexts`.

    Returns:
        The contexts with a sentence and one record for each way that was tried.
    """
    check_choice("method", method, METHODS)
    check_count("seed", seed, 0)
    check_number("confirmation", confirmation, maximum=1)
    source = open_features(features, labels, describe, seed)
    if num_contexts is not None:
        check_count("num_contexts", num_contexts, 1)
        if num_contexts > len(source):
            raise ValueError(
                f"num_contexts is {num_contexts}, but there are only {len(source)} samples."
            )
        if method == "early":
            raise ValueError(
                f"num_contexts is {num_contexts}, but method 'early' finds its own number; leave it"
                " out."
            )
    search_in = _Search.of(source, num_contexts, confirmation, seed)
    if isinstance(search_in, str):
        return _one_context(source, search_in)
    outcomes = search_in.try_all(method, num_contexts)
    trials = tuple(trial for trial, _ in outcomes)
    rejected = [
        f"Rejected {_NAMES[trial.method]}: {trial.reason}" for trial in trials if not trial.accepted
    ]
    believed = [outcome for outcome in outcomes if outcome[0].accepted]
    if not believed:
        return _one_context(source, ". ".join(["no contexts were confirmed", *rejected]), trials)
    best, found = max(believed, key=lambda outcome: outcome[0].stability)
    accepted = f"Found {best.number} contexts, {_NAMES[best.method]}: {best.reason}"
    return InferredContexts(found, best.method, ". ".join([accepted, *rejected]) + ".", trials)


def _one_context(source: Features, why: str, tried: tuple[Trial, ...] = ()) -> InferredContexts:
    """Return all samples in one context."""
    contexts = np.zeros(len(source), dtype=np.intp)
    return InferredContexts(contexts, "none", f"All samples are one context: {why}.", tried)


@dataclass(frozen=True, eq=False)
class _Search:
    """A bounded sample of the data, standardised, in which contexts are found, and how they must be
    confirmed.
    """

    source: Features
    rows: IndexArray
    scale: _Standardisation
    z: FloatArray
    y: IndexArray
    confirmation: float
    seed: int

    @classmethod
    def of(
        cls, source: Features, number: int | None, confirmation: float, seed: int
    ) -> _Search | str:
        """Draw and standardise the sample, or say what stands in the way of any context."""
        labels = source.labels
        rng = np.random.default_rng(seed)
        if number == 1:
            return "one context was asked for"
        sizes = np.bincount(labels)
        if int((sizes > 0).sum()) < 2:
            return "there is one class only, which nothing can be associated with"
        if int((sizes >= LEAST_CLASS).sum()) < 2:
            return f"fewer than two classes have {LEAST_CLASS} samples"
        rows = stratified_rows(labels, MOST_SAMPLES, rng)
        drawn = source.take(rows)
        scale = _Standardisation(drawn, rng)
        if scale.features < LEAST_FEATURES:
            return (
                f"fewer than {LEAST_FEATURES} features vary, so that halves of them cannot confirm"
                " each other"
            )
        return cls(source, rows, scale, scale(drawn), labels[rows], confirmation, seed)

    def try_all(self, method: str, number: int | None) -> list[tuple[Trial, IndexArray]]:
        """Try the ways that a method asks for: clusters, and where none is believed what a short
        training predicts.
        """
        trained = train_shortly(self.z, self.y, self.seed)
        outcomes: list[tuple[Trial, IndexArray]] = []
        for kind in (PooledClusters, WithinClusters):
            if method in ("auto", kind.name) and not self._settled(outcomes):
                rows = rows_to_cluster(
                    self.y, np.flatnonzero(trained.held_out != self.y), self.seed
                )
                z, y, least = self.z[rows], self.y[rows], self.needed(kind.name)
                found = find_clusters(kind, z, y, number=number, least=least, seed=self.seed)
                outcomes.append(self.judge_numbers(found))
        if method == "early" or (
            method == "auto" and number is None and not self._settled(outcomes)
        ):
            outcomes.append(self.judge(trained))
        return outcomes

    def _settled(self, outcomes: list[tuple[Trial, IndexArray]]) -> bool:
        """Return whether no further way is needed."""
        return bool(self.confirmation) and any(trial.accepted for trial, _ in outcomes)

    def judge_numbers(self, found: Iterator[Candidate]) -> tuple[Trial, IndexArray]:
        """Judge the best number of clusters, and if it is believed take the largest that passes the
        same checks.

        One number alone decides whether there are contexts: of many, one would pass by chance. What
        balances the parts of a context balances the context, too; so of those that pass the largest
        is taken.
        """
        with one_thread():
            best = next(found)
        outcome = self.judge(best)
        if outcome[0].accepted:
            with one_thread():
                larger = list(found)
            for candidate in larger:
                own = candidate.assign(self.z, self.y)
                trial = confirm(
                    candidate.method, candidate.stability, self.z, self.y, own, seed=self.seed
                )
                if trial.accepted:
                    return trial, self._assign(candidate)
        return outcome

    def needed(self, method: str) -> float:
        """Return how well halves of the features must agree."""
        return max(self.confirmation, LEAST_AGREEMENT[method]) if self.confirmation else 0.0

    def judge(self, candidate: Candidate) -> tuple[Trial, IndexArray]:
        """Assign all samples and check the contexts; what is unstable needs no pass over the
        data.
        """
        labels, method, stability = self.source.labels, candidate.method, candidate.stability
        if self.confirmation and stability < self.needed(method):
            reason = (
                f"halves of the features agree too little ({stability:.2f};"
                f" {self.needed(method):.2f} is needed)"
            )
            return Trial(method, 0, stability, reason=reason), np.zeros(len(labels), dtype=np.intp)
        contexts = self._assign(candidate)
        counts = group_table(labels, contexts)
        if not self.confirmation:
            return (
                Trial(method, counts.shape[1], stability, accepted=True, reason=UNCHECKED),
                contexts,
            )
        rows, z = self.rows, self.z
        if len(rows) < len(labels):  # samples that hold enough of every group, rare or not
            rng = np.random.default_rng((self.seed, 1))
            rows = stratified_rows(labels * counts.shape[1] + contexts, MOST_SAMPLES, rng)
            z = self.scale(self.source.take(rows))
        return (
            confirm(
                method, stability, z, labels[rows], contexts[rows], counts=counts, seed=self.seed
            ),
            contexts,
        )

    def _assign(self, candidate: Candidate) -> IndexArray:
        """Return the contexts of all samples, by a pass over the data if the sample is not all of
        them.
        """
        assigned = (
            candidate.assign(self.z, self.y) if candidate.held_out is None else candidate.held_out
        )
        if len(self.rows) < len(self.source):
            own, parts, start = assigned, [], 0
            for block in self.source.blocks():
                parts.append(
                    candidate.assign(
                        self.scale(block), self.source.labels[start : start + len(block)]
                    )
                )
                start += len(block)
            assigned = np.concatenate(parts)
            assigned[self.rows] = own
        return np.unique(assigned, return_inverse=True)[1].reshape(-1).astype(np.intp)


class _Standardisation:
    """Choose features that vary, and scale them to mean 0 and variance 1 in a sample."""

    def __init__(self, sample: FloatArray, rng: np.random.Generator) -> None:
        largest = np.abs(sample).max(axis=0, initial=0.0)
        # First, so that squares neither vanish nor overflow
        self._largest = np.where(largest > 0, largest, 1.0)
        scaled = sample / self._largest
        mean, deviation = scaled.mean(axis=0), scaled.std(axis=0)
        varying = np.flatnonzero(deviation > CONSTANT)
        if len(varying) > MOST_FEATURES:
            varying = np.sort(rng.choice(varying, MOST_FEATURES, replace=False))
        self._columns, self.features = varying, len(varying)
        self._largest, self._mean, self._deviation = (
            self._largest[varying],
            mean[varying],
            deviation[varying],
        )

    def __call__(self, features: FloatArray) -> FloatArray:
        return np.asarray(
            (features[:, self._columns] / self._largest - self._mean) / self._deviation
        )
