"""The risk of a classifier, sample by sample: what weightings weigh and penalties compare."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def sample_risks(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return the classification loss of each sample.

    Args:
        logits: Shape (n,) or (n, 1) for two classes (logistic loss), (n, c) for c classes (cross-entropy).
        labels: Shape (n,); 0 or 1 of any dtype for two classes, integer class indices for c classes.
        label_smoothing: Share of the target that is spread over all classes, from 0 to below 1.

    Returns:
        One loss per sample, shape (n,).

    Raises:
        ValueError: If the shapes do not fit together.

    Example:
        >>> import torch
        >>> sample_risks(torch.tensor([[0.0], [0.0]]), torch.tensor([0, 1]))
        tensor([0.6931, 0.6931])
    """
    check_logits(logits, labels)
    if is_binary(logits):
        scores = logits.reshape(len(labels))
        targets = labels.to(scores.dtype) * (1 - label_smoothing) + label_smoothing / 2
        return F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    return F.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return how each sample's risk would change if its logits were scaled: :math:`\partial_s \ell(s z, y)` at s = 1.

    In closed form it is :math:`\langle z, \nabla_z \ell(z, y) \rangle`, that is (σ(z) − y) z for two classes and
    Σ_c (softmax(z)_c − 1[y = c]) z_c for more, so that no second pass of automatic differentiation is needed.

    Args:
        logits: As for :func:`sample_risks`.
        labels: As for :func:`sample_risks`.

    Returns:
        One derivative per sample, shape (n,).

    Raises:
        ValueError: If the shapes do not fit together.
    """
    check_logits(logits, labels)
    if is_binary(logits):
        scores = logits.reshape(len(labels))
        return (torch.sigmoid(scores) - labels.to(scores.dtype)) * scores
    of_label = logits.gather(1, labels[:, None]).squeeze(1)
    return (torch.softmax(logits, dim=1) * logits).sum(1) - of_label


def is_binary(logits: Tensor) -> bool:
    """Return whether the logits are one score per sample."""
    return logits.ndim == 1 or logits.shape[1] == 1


def check_logits(logits: Tensor, labels: Tensor) -> None:
    """Raise unless there is one row of logits for each label."""
    for name, value in {"logits": logits, "labels": labels}.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} are a {type(value).__name__}; give a torch.Tensor.")
    if logits.ndim not in (1, 2) or labels.ndim != 1 or len(logits) != len(labels):
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and labels {tuple(labels.shape)}; "
            "give logits (n,), (n, 1) or (n, classes) and labels (n,)."
        )
