"""The loss of each sample, and how it changes when its logits are scaled."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from pfdl._internal.cuda_graphs import may_look


def sample_risks(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return the classification loss of each sample.

    Args:
        logits: Shape (n,) or (n, 1) for two classes (logistic loss), (n, c) for c classes
            (cross-entropy).
        labels: Shape (n,); 0 or 1 of any dtype for two classes, integer class indices for c
            classes.
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
    scores, classes = _by_class(logits, labels)
    return F.cross_entropy(scores, classes, reduction="none", label_smoothing=label_smoothing)


def scale_gradients(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return how each sample's risk would change if its logits were scaled: :math:`\partial_s
    \ell(s z, y)` at s = 1.

    In closed form it is :math:`\langle z, \nabla_z \ell(z, y) \rangle`, that is Σ_c (softmax(z)_c −
    1[y = c]) z_c, so that no second pass of automatic differentiation is needed.

    Args:
        logits: As for :func:`sample_risks`.
        labels: As for :func:`sample_risks`.

    Returns:
        One derivative per sample, shape (n,).

    Raises:
        ValueError: If the shapes do not fit together.
    """
    scores, classes = _by_class(logits, labels)
    of_label = scores.gather(1, classes[:, None]).squeeze(1)
    return (torch.softmax(scores, dim=1) * scores).sum(1) - of_label


def check_risks(risks: Tensor, samples: int | None = None) -> None:
    """Raise unless there is one finite number for each of so many samples; by default of any
    number.
    """
    if not isinstance(risks, Tensor):
        raise TypeError(f"risks are a {type(risks).__name__}; give a torch.Tensor of shape (n,).")
    if risks.dim() != 1 or samples not in (None, len(risks)):
        of_samples = "" if samples is None else f" for {samples} samples"
        raise ValueError(
            f"risks have shape {tuple(risks.shape)}{of_samples}; give one finite number per sample."
        )
    if may_look() and not bool(torch.isfinite(risks).all()):
        raise ValueError("risks are not all finite; give one finite number per sample.")


def _by_class(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (n, classes) and integer labels (n,); one score per sample is that of class 1,
    class 0 has 0.
    """
    for name, value in {"logits": logits, "labels": labels}.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} are a {type(value).__name__}; give a torch.Tensor.")
    are_one_per_sample = labels.ndim == 1 and logits.ndim in (1, 2)
    if not are_one_per_sample or len(logits) != len(labels):
        raise ValueError(
            f"logits have shape {tuple(logits.shape)} and labels {tuple(labels.shape)}; "
            "give logits (n,), (n, 1) or (n, classes) and labels (n,)."
        )
    if logits.ndim == 2 and logits.shape[1] > 1:
        return logits, labels
    scores_of_class_1 = logits.reshape(-1, 1)
    return F.pad(scores_of_class_1, (1, 0)), labels.long()
