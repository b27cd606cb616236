"""A bounded sample of the data, standardised, in which contexts are found and judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pfdl.contexts._arrays import FloatArray, IndexArray
from pfdl.contexts.finders import Proposal
from pfdl.contexts.ridge import CONSTANT
from pfdl.contexts.sampling import stratified_rows
from pfdl.contexts.sources import Features

MOST_SAMPLES = 20_000
"""Contexts are found and judged by so many samples; what is held in memory does not grow beyond
them.
"""

MOST_FEATURES = 2048
"""Of more features so many are drawn: a context that moves many features is seen in these, too."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A bounded sample of the data, standardised, in which contexts are found.

    Attributes:
        source: All of the data.
        rows: The samples that were drawn, sorted.
        scale: How features are standardised.
        z: The standardised features of these samples, shape (m, p).
        y: Their classes, shape (m,).
    """

    source: Features
    rows: IndexArray
    scale: _Standardisation
    z: FloatArray
    y: IndexArray

    @classmethod
    def draw(cls, source: Features, seed: int) -> Sample:
        """Draw and standardise the sample, the same number of every class as far as it goes."""
        rng = np.random.default_rng(seed)
        rows = stratified_rows(source.labels, MOST_SAMPLES, rng)
        drawn = source.take(rows)
        scale = _Standardisation(drawn, rng)
        return cls(source, rows, scale, scale(drawn), source.labels[rows])

    @property
    def is_all(self) -> bool:
        """Return whether the sample is all of the data."""
        return len(self.rows) == len(self.source)

    def assign_all(self, proposal: Proposal) -> IndexArray:
        """Return the context of each sample of the data, numbered from 0 without gaps, by a pass
        over the data if contexts are proposed for the sample alone.

        Raises:
            ValueError: If a pass is needed and the proposal cannot say of other samples.
        """
        contexts = proposal.contexts
        if len(contexts) < len(self.source):
            contexts = self._assign_others(proposal)
        return np.unique(contexts, return_inverse=True)[1].reshape(-1).astype(np.intp)

    def _assign_others(self, proposal: Proposal) -> IndexArray:
        if proposal.assign is None:
            raise ValueError(
                f"the finder gave contexts of {len(self.rows)} of {len(self.source)} samples; for"
                " more than that it must return a Proposal with assign=..., the rule for others."
            )
        parts = []
        start = 0
        for block in self.source.blocks():
            labels = self.source.labels[start : start + len(block)]
            parts.append(proposal.assign(self.scale(block), labels))
            start += len(block)
        contexts = np.concatenate(parts)
        contexts[self.rows] = proposal.contexts
        return contexts

    def rows_to_judge(self, contexts: IndexArray, seed: int) -> tuple[IndexArray, FloatArray]:
        """Return samples that hold enough of every group, rare or not, and their features."""
        if self.is_all:
            return self.rows, self.z
        rng = np.random.default_rng((seed, 1))
        groups = self.source.labels * (int(contexts.max()) + 1) + contexts
        rows = stratified_rows(groups, MOST_SAMPLES, rng)
        return rows, self.scale(self.source.take(rows))


class _Standardisation:
    """Choose features that vary, and scale them to mean 0 and variance 1 in a sample."""

    def __init__(self, sample: FloatArray, rng: np.random.Generator) -> None:
        largest = np.abs(sample).max(axis=0, initial=0.0)
        # First, so that squares neither vanish nor overflow
        self._largest = np.where(largest > 0, largest, 1.0)
        scaled = sample / self._largest
        mean = scaled.mean(axis=0)
        deviation = scaled.std(axis=0)
        varying = np.flatnonzero(deviation > CONSTANT)
        if len(varying) > MOST_FEATURES:
            varying = np.sort(rng.choice(varying, MOST_FEATURES, replace=False))
        self._columns = varying
        self.features = len(varying)
        self._largest = self._largest[varying]
        self._mean = mean[varying]
        self._deviation = deviation[varying]

    def __call__(self, features: FloatArray) -> FloatArray:
        return np.asarray(
            (features[:, self._columns] / self._largest - self._mean) / self._deviation
        )
