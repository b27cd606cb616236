"""Balance contexts within classes: draw all groups equally often, or weight their samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Sampler

from pfdl._internal.validation import check_count, check_number
from pfdl.contexts._arrays import FloatArray, IndexArray, as_equally_many, as_numbers, group_table
from pfdl.contexts.groups import Accuracies
from pfdl.contexts.quality import group_accuracy
from pfdl.objectives.weightings.balance import SMOOTHING, balancing_table

HEAVY = 10.0
"""From this weight on a single sample counts so much that a sampler is the better choice."""

LEAST_GROUP = 10
"""Groups with fewer held-out samples are pooled: the accuracy of each would be mostly chance."""


@overload
def context_weights(labels: Tensor, contexts: Any, *, smoothing: float = SMOOTHING) -> Tensor: ...
@overload
def context_weights(
    labels: ArrayLike, contexts: Any, *, smoothing: float = SMOOTHING
) -> FloatArray: ...
def context_weights(
    labels: Any, contexts: Any, *, smoothing: float = SMOOTHING
) -> Tensor | FloatArray:
    """Return weights under which the contexts are equally frequent in every class.

    Prefer :func:`context_sampler` where the loop allows it: rare groups then have many small
    gradients instead of a few large ones, which trains better on the same groups.

    Args:
        labels: The classes, shape (n,): numbers or names.
        contexts: The context of each sample, shape (n,): known, or from
            :func:`pfdl.infer_contexts`.
        smoothing: What is added to the count of each group, as a part of the mean count of its
            class's groups. With 0 the balance is exact, and a few stray samples may outweigh their
            class.

    Returns:
        Shape (n,); the mean is 1 within every class, so that the classes keep their frequencies. A
        float32 tensor on the device of ``labels`` if that is a tensor, otherwise a float64 array.

    Raises:
        ValueError: If the shapes do not fit, there are no samples, or ``smoothing`` is not a number
            of at least 0.

    Warns:
        UserWarning: If a weight exceeds 10.

    Example:
        >>> context_weights(
        ...     [0, 0, 0, 0, 1, 1], ["snow", "snow", "snow", "sea", "snow", "sea"], smoothing=0.0
        ... ).round(3)
        array([0.667, 0.667, 0.667, 2.   , 1.   , 1.   ])
    """
    check_number("smoothing", smoothing)
    y, context = as_equally_many(labels=labels, contexts=contexts)
    counts = group_table(y, context)
    weights: Tensor = balancing_table(torch.from_numpy(counts).double(), smoothing)[y, context]
    if float(weights.max()) > HEAVY:
        size = counts[y, context][int(weights.argmax())]
        warnings.warn(
            f"a group of {size} samples has weight {float(weights.max()):.1f} each; above {HEAVY:g}"
            " a few samples decide the training. Draw groups with pfdl.context_sampler instead, or"
            " raise smoothing.",
            stacklevel=2,
        )
    return (
        weights.to(labels.device, torch.float32) if isinstance(labels, Tensor) else weights.numpy()
    )


class ContextSampler(Sampler[int]):
    """Draw the numbers of samples so that all groups, one class in one context each, are equally
    frequent.

    For a ``DataLoader``; the recommended way to train on contexts: on the same groups it does
    better than weights. Within a group samples come in random order, and none comes again before
    all have come. Where all samples are in one context, as :func:`pfdl.infer_contexts` returns
    where it finds nothing, every sample is drawn as often as any other. To draw classes equally
    often, give them as the contexts, too. ``pfdl.context_sampler`` is another name for it.

    Where labels are wrong, rare groups hold most of the wrong ones, and drawing them often repeats
    these. Then balance
    less: :func:`choose_balance` chooses ``power``.

    Args:
        labels: The classes, shape (n,), in the order of the dataset.
        contexts: The context of each sample, shape (n,): known, or from
            :func:`pfdl.infer_contexts`.
        power: α: a sample of a group of n_g samples is drawn in proportion to n_g^−α. With 1 all
            groups are equally frequent, with 0 every sample is.
        num_samples: How many are drawn in an epoch over all processes; by default n.
        seed: The order follows from it and from the number of the epoch, see :meth:`set_epoch`.
        replicas: Number of processes that share an epoch.
        rank: Which of these processes this is.

    Raises:
        ValueError: If the shapes do not fit, there are no samples, or a setting is out of range.

    Example:
        >>> labels, contexts = [0, 0, 0, 0, 0, 0, 1, 1], ["snow"] * 5 + ["sea"] * 3
        >>> drawn = list(ContextSampler(labels, contexts, num_samples=9))
        >>> drawn.count(5)  # the only sample of class 0 at sea has a third of the draws
        3
    """

    def __init__(
        self,
        labels: Any,
        contexts: Any,
        *,
        power: float = 1.0,
        num_samples: int | None = None,
        seed: int = 0,
        replicas: int = 1,
        rank: int = 0,
    ) -> None:
        y, context = as_equally_many(labels=labels, contexts=contexts)
        check_number("power", power, maximum=1)
        if num_samples is not None:
            check_count("num_samples", num_samples, 1)
        check_count("replicas", replicas, 1)
        check_count("rank", rank, 0)
        if rank >= replicas:
            raise ValueError(
                f"rank is {rank}; with {replicas} replicas it must be below {replicas}."
            )
        check_count("seed", seed, 0)
        group = np.zeros(len(y), np.int64)
        if has_several(context):
            group = as_numbers("groups", y * (int(context.max()) + 1) + context)
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group)
        self._groups = np.split(order, np.cumsum(sizes)[:-1])
        self._frequencies = sizes ** (1.0 - power) / (sizes ** (1.0 - power)).sum()
        self._total = len(y) if num_samples is None else num_samples
        self._replicas = replicas
        self._rank = rank
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, so that each has an order of its own and any can be drawn
        again.
        """
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self._total / self._replicas)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng((self.seed, self.epoch))
        self.epoch += 1
        total = len(self) * self._replicas
        exact = total * self._frequencies
        shares = np.floor(exact + 1e-9).astype(np.int64)
        # Of groups that lack equally much, chance decides which has one more
        order = rng.permutation(len(shares))
        most_lacking = order[np.argsort((shares - exact)[order].round(9), kind="stable")]
        shares[most_lacking[: total - shares.sum()]] += 1
        drawn = np.concatenate(
            [_cycle(group, share, rng) for group, share in zip(self._groups, shares, strict=True)]
        )
        yield from rng.permutation(drawn)[self._rank :: self._replicas].tolist()


context_sampler = ContextSampler


def choose_balance(predictions: Mapping[float, Any], labels: Any, contexts: Any) -> float:
    """Choose how strongly to balance groups by the accuracy on held-out samples, averaged over
    groups.

    Train your model once for each strength to choose from, with ``context_sampler(…, power=α)`` and
    α of 0, 0.5 and 1, say, and predict samples that none of them was trained on. The labels of
    these samples may be as wrong as those of the training set: a model that has learnt the wrong
    labels of rare groups does worse on them, too.

    Groups count equally in the average. Those with fewer than ten held-out samples are pooled:
    their samples count the same, and together as much as that many groups.

    Args:
        predictions: For each strength the predicted classes of the held-out samples, shape (n,), in
            the numbers or names of ``labels``, or scores of all classes, shape (n, classes).
        labels: The classes of the held-out samples, shape (n,).
        contexts: Their contexts, shape (n,), known, or inferred together with those of the training
            set.

    Returns:
        The strength with the best average; of equal ones, and where all samples are in one context,
        the mildest.

    Raises:
        ValueError: If there is no strength to choose from, or the shapes do not fit.

    Example:
        >>> labels, contexts = [0, 0, 0, 1, 1, 1], ["snow", "snow", "sea", "sea", "sea", "snow"]
        >>> choose_balance({0.0: [0, 0, 1, 1, 1, 0], 1.0: [0, 0, 0, 1, 0, 1]}, labels, contexts)
        1.0
    """
    if not predictions:
        raise ValueError(
            "there are no predictions; give those of at least one strength of balancing."
        )
    found = {
        power: group_accuracy(given, labels, contexts)
        for power, given in sorted(predictions.items())
    }
    if len(found[min(found)].by_context) < 2:
        return min(found)
    return max(found, key=lambda power: _pooled_average(found[power]))


def _pooled_average(found: Accuracies) -> float:
    """Return the average over groups, with one accuracy for all small groups together."""
    large = [group.accuracy for group in found.groups if group.samples >= LEAST_GROUP]
    small = [group for group in found.groups if group.samples < LEAST_GROUP]
    right = sum(group.accuracy * group.samples for group in small)
    pooled = right / max(sum(group.samples for group in small), 1)
    return (sum(large) + len(small) * pooled) / len(found.groups)


def has_several(contexts: Any) -> bool:
    """Return whether there is more than one context; with one, there is nothing to balance."""
    return bool((contexts != contexts[:1]).any())


def _cycle(group: IndexArray, share: int, rng: np.random.Generator) -> IndexArray:
    rounds = [rng.permutation(group) for _ in range(-(-share // len(group)))]
    return np.concatenate([*rounds, group[:0]])[:share]
