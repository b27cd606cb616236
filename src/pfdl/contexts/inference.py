"""The context of each sample, inferred from features or images and class labels; no context labels
needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from pfdl._internal.validation import check_count, check_number
from pfdl.contexts._arrays import FloatArray, IndexArray, as_numbers
from pfdl.contexts.confirmation import Trial, errors_for_tries
from pfdl.contexts.finders import (
    AUTO,
    Demands,
    Proposal,
    automatic_finders,
    check_settings_of,
    get_finder,
    propose,
    reads_logits,
    takes,
)
from pfdl.contexts.judging import Judge, Outcome
from pfdl.contexts.sample import Sample
from pfdl.contexts.sources import DESCRIBED, FEATURES, Describe, Features, open_descriptions

GIVEN = "given"
"""What a user's own contexts are called beside the finders."""

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
