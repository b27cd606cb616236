"""Put what finders propose through the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from pfdl.contexts._arrays import IndexArray, group_table
from pfdl.contexts.confirmation import Trial, confirm
from pfdl.contexts.early import HALVINGS
from pfdl.contexts.finders import Finder, Proposal, get_finder, propose
from pfdl.contexts.sample import Sample

UNCHECKED = "nothing was checked"


class Outcome(NamedTuple):
    """What was proposed, for all samples, and what the checks say of it."""

    trial: Trial
    contexts: IndexArray
    proposal: Proposal


@dataclass(frozen=True, eq=False)
class Judge:
    """Put what finders propose through the checks.

    Attributes:
        sample: The samples that contexts are found in.
        confirmation: How well halves of the features must agree at least; 0 to check nothing.
        sure: By how many standard errors the checks must hold.
        seed: Seed of draws and halves.
    """

    sample: Sample
    confirmation: float
    sure: float
    seed: int

    def try_finders(
        self, names: Iterable[str], offered: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> list[Outcome]:
        """Try finders in turn, until what one proposes is accepted."""
        outcomes: list[Outcome] = []
        for name in names:
            outcomes.append(self.try_finder(name, get_finder(name), offered, settings))
            if self.confirmation and outcomes[-1].trial.accepted:
                break
        return outcomes

    def try_finder(
        self,
        name: str,
        finder: Finder,
        offered: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> Outcome:
        """Run a finder and judge what it proposes.

        The first proposal alone decides whether there are contexts: of many, one would pass by
        chance. What balances the parts of a context balances the context, too; so of the others,
        which come with the largest number first, the first that passes the same checks is taken.
        """
        offered = dict(offered) if self.confirmation else {**offered, "least_agreement": 0.0}
        run = partial(propose, finder, offered=offered, settings=settings)
        proposals = run(self.sample.z, self.sample.y)
        first = self.judge(name, next(proposals), run)
        if not self.confirmation or not first.trial.accepted:
            return first
        for proposal in proposals:
            larger = self.judge(name, proposal, run)
            if larger.trial.accepted:
                return larger
        return first

    def judge(
        self, name: str, proposal: Proposal, run: Callable[..., Iterator[Proposal]] | None = None
    ) -> Outcome:
        """Assign all samples and check the contexts; what is unstable needs no pass over the
        data.

        Args:
            name: What the finder is called.
            proposal: What it proposes.
            run: The finder, to measure the agreement of halves if the proposal does not state it.
        """
        demands = proposal.demands
        stability = proposal.stability
        if stability is None:
            stability = self._agreement_of_halves(run) if run is not None else float("nan")
        if self.confirmation and demands.agreement is not None:
            needed = max(self.confirmation, demands.agreement)
            if stability < needed:
                reason = (
                    f"halves of the features agree too little ({stability:.2f}; {needed:.2f} is"
                    " needed)"
                )
                none = np.zeros(len(self.sample.source), dtype=np.intp)
                return Outcome(Trial(name, 0, stability, reason=reason), none, proposal)
        contexts = self.sample.assign_all(proposal)
        labels = self.sample.source.labels
        counts = group_table(labels, contexts)
        if not self.confirmation:
            trial = Trial(name, counts.shape[1], stability, accepted=True, reason=UNCHECKED)
            return Outcome(trial, contexts, proposal)
        rows, z = self.sample.rows_to_judge(contexts, self.seed)
        trial = confirm(
            name,
            stability,
            z,
            labels[rows],
            contexts[rows],
            demands=demands,
            counts=counts,
            sure=self.sure,
            seed=self.seed,
        )
        return Outcome(trial, contexts, proposal)

    def _agreement_of_halves(self, run: Callable[..., Iterator[Proposal]]) -> float:
        """Return the adjusted Rand index within classes of what a finder proposes from random
        halves of the features.
        """
        z = self.sample.z
        y = self.sample.y
        rng = np.random.default_rng((self.seed, 2))
        agreement = []
        for _ in range(HALVINGS):
            first, second = np.array_split(rng.permutation(z.shape[1]), 2)
            one = next(run(z[:, first], y)).contexts
            other = next(run(z[:, second], y)).contexts
            agreement += [
                adjusted_rand_score(one[y == label], other[y == label]) for label in np.unique(y)
            ]
        return float(np.mean(agreement))
