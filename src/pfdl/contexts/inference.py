"""The context of each sample, inferred from features or images and class labels; no context labels
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from pfdl._internal.validation import check_count, check_number
from pfdl.contexts._arrays import FloatArray, IndexArray, as_numbers, group_table
from pfdl.contexts.confirmation import Trial, confirm, errors_for_tries
from pfdl.contexts.early import HALVINGS
from pfdl.contexts.finders import (
    AUTO,
    Demands,
    Finder,
    Proposal,
    automatic_finders,
    check_settings_of,
    get_finder,
    propose,
    reads_logits,
    takes,
)
from pfdl.contexts.ridge import CONSTANT
from pfdl.contexts.sampling import stratified_rows
from pfdl.contexts.sources import DESCRIBED, FEATURES, Describe, Features, open_descriptions

GIVEN = "given"
"""What a user's own contexts are called beside the finders."""

MOST_SAMPLES = 20_000
"""Contexts are found and judged by so many samples; what is held in memory does not grow beyond
them.
"""

MOST_FEATURES = 2048
"""Of more features so many are drawn: a context that moves many features is seen in these, too."""

FOR_FEATURES_ALONE = ("misled",)
"""Finders that ``auto`` tries on the features that it is given, and not on descriptions of images:
by statistics alone ``misled`` took parts of a context for all of it, and stood in the way of what
positions show."""

LEAST_CLASS = 10
"""At least two classes must have so many samples."""

LEAST_FEATURES = 4
"""With fewer, halves of the features cannot confirm each other."""

TOO_FEW = (
    f"fewer than {LEAST_FEATURES} features vary, so that halves of them cannot confirm each other"
)

UNCHECKED = "nothing was checked"


@dataclass(frozen=True, eq=False)
class InferredContexts:
    """Contexts, and why they are believed.

    Attributes:
        contexts: The context of each sample, shape (n,), from 0; all 0 where no contexts were
            confirmed.
        method: The finder that proposed them, ``"given"`` for your own, or ``"none"``.
        sentence: What was tried, what was found and why it is believed, for a person to read.
        tried: One entry for each finder that was tried.
        draws: For a finder that says so, how often each sample is drawn relative to the others,
            shape (n,): ``torch.utils.data.WeightedRandomSampler(found.draws, len(found.draws))``.
            None to draw all groups equally often.
        description: What shows the contexts: ``"features"``, ``"statistics"`` or ``"positions"``;
            empty where none were found.
    """

    contexts: IndexArray
    method: str
    sentence: str
    tried: tuple[Trial, ...] = ()
    draws: FloatArray | None = None
    description: str = ""

    @property
    def number(self) -> int:
        """Return how many contexts there are."""
        return int(self.contexts.max(initial=0)) + 1

    def to_dict(self) -> dict[str, Any]:
        """Return how many there are, how they were found and why they are believed, as what JSON
        can hold.
        """
        return {
            "number": self.number,
            "method": self.method,
            "sentence": self.sentence,
            "description": self.description,
        }


def infer_contexts(features: Any, labels: Any = None, **settings: Any) -> IndexArray:
    """Infer the context of each sample from features or images and class labels alone.

    It returns the ``contexts`` of :func:`pfdl.contexts.find_contexts`, which takes the same
    arguments and also says what was tried and why the result is believed.

    Args:
        features: Features, shape (n, p); or images, shape (n, channels, height, width); or a
            ``Dataset`` or ``DataLoader`` of (features or image, label, …).
        labels: The classes, shape (n,); not needed if the dataset gives them.
        **settings: Those of :func:`pfdl.contexts.find_contexts`: ``method``, ``num_contexts``,
            ``confirmation``, ``describe``, ``seed``.

    Returns:
        The context of each sample, shape (n,), numbered from 0; all 0 where no contexts were
        confirmed: then balancing changes nothing.

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
    return find_contexts(features, labels, **settings).contexts


def find_contexts(
    features: Any,
    labels: Any = None,
    *,
    method: str = AUTO,
    contexts: Any = None,
    num_contexts: int | None = None,
    confirmation: float = 0.5,
    describe: Describe | None = None,
    images: Any = None,
    seed: int = 0,
    **settings: Any,
) -> InferredContexts:
    """Find contexts, or judge contexts of your own, and say why they are believed or not.

    Contexts count only if they can be confirmed: random halves of the features agree on them, they
    go with the class, a short training is misled by them, and one that draws their groups equally
    often does better on held-out samples. Otherwise all samples are in one context, and balancing
    changes nothing.

    Give features of a pretrained network, or images, or both. They are described in turn, until
    contexts are confirmed: by the features, by :func:`pfdl.image_statistics`, and by the mean
    colours of a 7×7 grid, which see a mark in a corner. Each description is confirmed by itself,
    the more strictly the more are tried. Features of a network that was trained on these labels are
    no good: within a class they soon say more of the object than of the context. What is in memory
    at a time is a block of samples and a sample of 20,000, whatever n is.

    Args:
        features: Features, shape (n, p); or images, shape (n, channels, height, width); or a
            ``Dataset`` or ``DataLoader`` of (features or image, label, …). A loader's order does
            not matter: contexts come in the order of its dataset. For the finders that read them
            (``"jtt"``, ``"spare"``, ``"eiil"``), logits of a first network.
        labels: The classes, shape (n,), numbers or names, or one-hot rows; not needed if the
            dataset gives them.
        method: ``"pooled"``, clusters over all samples; ``"within"``, groups within classes of what
            features predict of each other; ``"early"`` and ``"misled"``, the class that a short
            training predicts, which are checked in different ways; ``"auto"``, the first of these
            that is confirmed; or another name of :func:`pfdl.contexts.list_contexts`.
        contexts: Your own contexts, shape (n,), numbers or names: they are judged in place of
            what a finder proposes, by the same checks but for the agreement of halves.
        num_contexts: Number of clusters; by default that of 2 to 12 on which halves of the features
            agree best, or a larger one that passes the checks, too. Only clusters are tried if it
            is given.
        confirmation: How well halves of the features must agree, 0 to 1: the adjusted Rand index of
            clusters, or of what a short training gets wrong the share on which both halves give the
            same wrong class. At least 0.95 is needed of clusters over all samples, 0.5 of groups
            within classes and 0.8 of a short training; a larger value raises these. With 0 nothing
            is checked and the most stable contexts are returned.
        describe: From a batch of images to features, shape (n, p), for instance a pretrained
            network; it takes the place of features.
        images: The images of the features, shape (n, channels, height, width), or a ``Dataset`` of
            them in the same order: they are described, too.
        seed: Seed of samples, halves and clusters.
        **settings: Settings of the finder that ``method`` names.

    Returns:
        The contexts with a sentence and one record for each finder that was tried.

    Raises:
        TypeError, ValueError: If the arrays do not fit or a setting is out of range.
    """
    check_count("seed", seed, 0)
    check_number("confirmation", confirmation, maximum=1)
    check_settings_of(method, settings)
    if reads_logits(method):
        return _take_unchecked(method, features, labels, seed, settings)
    sources = open_descriptions(features, labels, describe, images, seed)
    if not confirmation:
        sources = sources[:1]
    names = [method]
    if method == AUTO:
        names = list(automatic_finders())
    offered: dict[str, Any] = {"seed": seed}
    if num_contexts is not None:
        offered["num_contexts"] = num_contexts
        names = _finders_of_a_number(names, num_contexts, len(sources[0]))
    sure = errors_for_tries(len(sources))
    answers = []
    for source in sources:
        if obstacle := _obstacle(source.labels, num_contexts):
            return _one_context(source, obstacle)
        sample = Sample.draw(source, seed)
        if sample.z.shape[1] < LEAST_FEATURES:
            answers.append(_one_context(source, TOO_FEW))
            continue
        judge = Judge(sample, confirmation, sure, seed)
        if contexts is not None:
            outcomes = [judge.judge(GIVEN, _given(contexts, source))]
        else:
            fitting = _fitting(names, method, source)
            outcomes = judge.try_finders(fitting, offered, settings)
        answers.append(_describe_outcomes(source, outcomes))
        if outcomes[-1].trial.accepted:
            break
    return _join_answers(answers)


def _fitting(names: list[str], method: str, source: Features) -> list[str]:
    """Return the finders to try on a description: some are for features of a network alone."""
    if method != AUTO or source.name == FEATURES:
        return names
    return [name for name in names if name not in FOR_FEATURES_ALONE]


def _join_answers(answers: list[InferredContexts]) -> InferredContexts:
    """Return the last answer, with what was tried before it."""
    last = answers[-1]
    tried = tuple(chain.from_iterable(answer.tried for answer in answers))
    sentences = [last.sentence, *(answer.sentence for answer in answers[:-1])]
    if last.number == 1:
        sentences = [answer.sentence for answer in answers]
    return replace(last, sentence=" ".join(dict.fromkeys(sentences)), tried=tried)


def _take_unchecked(
    method: str, logits: Any, labels: Any, seed: int, settings: Mapping[str, Any]
) -> InferredContexts:
    """Return contexts from logits as they are: nothing is checked, as in the papers."""
    (proposal,) = propose(get_finder(method), logits, labels, {"seed": seed}, settings)
    return InferredContexts(proposal.contexts, method, proposal.sentence, draws=proposal.draws)


def _finders_of_a_number(names: list[str], number: int, samples: int) -> list[str]:
    """Return the finders that can be asked for a number of contexts.

    Raises:
        ValueError: If the number cannot be used, or none of them can.
    """
    check_count("num_contexts", number, 1)
    if number > samples:
        raise ValueError(f"num_contexts is {number}, but there are only {samples} samples.")
    able = [name for name in names if takes(get_finder(name), "num_contexts")]
    if not able:
        raise ValueError(
            f"num_contexts is {number}, but method {names[0]!r} finds its own number; leave it out."
        )
    return able


def _obstacle(labels: IndexArray, number: int | None) -> str:
    """Say what stands in the way of any context; empty if nothing does."""
    if number == 1:
        return "one context was asked for"
    sizes = np.bincount(labels)
    if int((sizes > 0).sum()) < 2:
        return "there is one class only, which nothing can be associated with"
    if int((sizes >= LEAST_CLASS).sum()) < 2:
        return f"fewer than two classes have {LEAST_CLASS} samples"
    return ""


def _given(contexts: Any, source: Features) -> Proposal:
    """Return a user's own contexts as what is proposed for all samples.

    Raises:
        ValueError: If there is not one per sample.
    """
    numbers = as_numbers("contexts", contexts).astype(np.intp)
    if len(numbers) != len(source):
        raise ValueError(
            f"there are {len(source)} samples and {len(numbers)} contexts; give one context per"
            " sample."
        )
    return Proposal(numbers, "Your own.", stability=float("nan"), demands=Demands(agreement=None))


class Outcome(NamedTuple):
    """What was proposed, for all samples, and what the checks say of it."""

    trial: Trial
    contexts: IndexArray
    proposal: Proposal


def _describe_outcomes(source: Features, outcomes: list[Outcome]) -> InferredContexts:
    """Return the accepted contexts that are most stable, or one context, with a sentence."""
    trials = tuple(replace(outcome.trial, description=source.name) for outcome in outcomes)
    by = "" if source.name == FEATURES else f" by {DESCRIBED[source.name]}"
    rejected = [
        f"Rejected {_as_phrase(outcome)}: {outcome.trial.reason}"
        for outcome in outcomes
        if not outcome.trial.accepted
    ]
    accepted = [outcome for outcome in outcomes if outcome.trial.accepted]
    if not accepted:
        why = ". ".join([f"no contexts were confirmed{by}", *rejected])
        return _one_context(source, why, trials)
    best = max(accepted, key=lambda outcome: outcome.trial.stability)
    found = f"Found {best.trial.number} contexts{by}, {_as_phrase(best)}: {best.trial.reason}"
    sentence = ". ".join([found, *rejected]) + "."
    return InferredContexts(
        best.contexts, best.trial.method, sentence, trials, best.proposal.draws, source.name
    )


def _as_phrase(outcome: Outcome) -> str:
    """Return what contexts are, as it stands within a sentence."""
    sentence = outcome.proposal.sentence.rstrip(".") or f"By {outcome.trial.method}"
    return sentence[0].lower() + sentence[1:]


def _one_context(source: Features, why: str, tried: tuple[Trial, ...] = ()) -> InferredContexts:
    """Return all samples in one context."""
    contexts = np.zeros(len(source), dtype=np.intp)
    return InferredContexts(contexts, "none", f"All samples are one context: {why}.", tried)


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
