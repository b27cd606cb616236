"""Reach the features of any classifier without changing it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from pfdl.vision.pixels import normalise

BATCH = 256
"""Images at a time that a trained model looks at."""


class FeatureTap:
    """Hold the input of one layer of a model, as of the model's last forward pass. Made by
    :func:`attach`.

    A model with a tap can be copied and pickled; the copy's hook notes into a copy of the tap,
    without the features.

    Attributes:
        layer_name: Which layer is watched.
        num_features: The width of its input if the layer has one (as ``nn.Linear`` does), else
            None.
    """

    def __init__(self, layer: nn.Module, layer_name: str) -> None:
        self.layer_name = layer_name
        width: Any = getattr(layer, "in_channels" if _is_pointwise(layer) else "in_features", None)
        self.num_features: int | None = width
        self._seen: Tensor | None = None
        self._hook = layer.register_forward_pre_hook(self._remember)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the features out: they belong to a graph, which nothing can copy."""
        return {**self.__dict__, "_seen": None}

    def _remember(self, _layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._seen = inputs[0]

    @property
    def features(self) -> Tensor:
        """U, shape (n, p), with its graph, of the last forward pass; maps of 1×1 pixels are
        flattened.
        """
        if self._seen is None:
            raise RuntimeError(
                f"no features yet: layer {self.layer_name!r} has not run since it was attached. "
                "Call the model first, then read .features."
            )
        if self._seen.ndim > 2 and self._seen[0, 0].numel() == 1:
            return self._seen.flatten(1)
        if self._seen.ndim != 2:
            raise ValueError(
                f"layer {self.layer_name!r} takes an input of shape {tuple(self._seen.shape)};"
                " features are (batch, features). Attach to a layer after pooling and flattening,"
                " with layer='its.name'."
            )
        return self._seen

    def detach(self) -> None:
        """Take the hook off: the model is as it was."""
        self._hook.remove()
        self._seen = None

    def __enter__(self) -> FeatureTap:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def attach(model: nn.Module, layer: str | nn.Module | None = None) -> FeatureTap:
    """Watch the features that enter the last linear layer of a classifier.

    The model is not changed: a hook notes the layer's input at each forward pass. For inference use
    the model as it is::

        tap = pfdl.attach(model)
        decorrelate = pfdl.PartialDecorrelation(tap.num_features)
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels) + decorrelate(tap.features)

    Args:
        model: Any ``nn.Module``, for instance from torchvision or timm.
        layer: The layer whose input are the features, by name (as in ``model.named_modules()``) or
            the module itself. By default what ``model.get_classifier()`` returns where there is
            such a method and it returns a linear layer or a 1×1 convolution (timm), else the last
            ``nn.Linear``.

    Returns:
        A :class:`FeatureTap`; read its ``features`` after a forward pass. It is also a context
        manager that takes the hook off at the end. Layers that run more than once in a pass give
        their last input.

    Raises:
        ValueError: If there is no such layer.

    Example:
        >>> import torch, pfdl
        >>> model = torch.nn.Sequential(
        ...     torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
        ... )
        >>> tap = pfdl.attach(model)
        >>> logits = model(torch.ones(2, 8))
        >>> tap.layer_name, tap.num_features, tap.features.shape
        ('2', 5, torch.Size([2, 5]))
    """
    modules = dict(model.named_modules())
    linear = {name: module for name, module in modules.items() if isinstance(module, nn.Linear)}
    wanted = layer
    if wanted is None:
        ask: Callable[[], object] = getattr(model, "get_classifier", lambda: None)
        classifier = ask()
        fits = isinstance(classifier, nn.Linear) or _is_pointwise(classifier)
        wanted = classifier if fits else next(reversed(linear.values()), None)  # type: ignore[assignment]
        if wanted is None:
            raise ValueError(
                f"{type(model).__name__} has no linear layer whose input could be the features;"
                " name the layer that takes them, attach(model, layer='its.name'), or choose"
                " another backbone."
            )
    if isinstance(wanted, str):
        if wanted not in modules:
            raise ValueError(
                f"{type(model).__name__} has no layer {wanted!r}; its linear layers are:"
                f" {', '.join(linear) or 'none'}."
            )
        return FeatureTap(modules[wanted], wanted)
    for name, module in modules.items():
        if module is wanted:
            return FeatureTap(module, name)
    raise ValueError(
        f"the {type(wanted).__name__} given as layer is not a part of this {type(model).__name__}."
    )


def _is_pointwise(layer: object) -> bool:
    """Return whether a layer is a 1×1 convolution, which is linear on each pixel."""
    return isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1)


def embed(
    model: nn.Module, images: Tensor, *, device: str | torch.device = "cpu", batch_size: int = BATCH
) -> Tensor:
    """Return the features of images.

    Args:
        model: A classifier; it is moved to the device, and is in ``eval()`` mode meanwhile.
        images: Bytes or normalised, shape (n, 3, h, w).
        device: Where to compute.
        batch_size: Images at a time.

    Returns:
        Shape (n, p), on the CPU.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> embed(model, torch.zeros(3, 3, 2, 2)).shape
        torch.Size([3, 5])
    """
    return run_model(model, images, device=device, batch_size=batch_size, with_features=True)[1]


@torch.no_grad()
def run_model(
    model: nn.Module,
    images: Tensor | Dataset[tuple[Tensor, int, int]],
    *,
    device: str | torch.device = "cpu",
    batch_size: int = BATCH,
    with_features: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the logits of images, or of a dataset whose items begin with them, and the features if
    they are wanted.
    """
    modes = {part: part.training for part in model.modules()}
    model.to(device).eval()
    batches: Any
    if isinstance(images, Dataset):
        batches = (batch[0] for batch in DataLoader(images, batch_size))
    else:
        batches = torch.split(images, batch_size)
    logits = []
    features = []
    try:
        with attach(model) if with_features else nullcontext() as tap:
            for pixels in batches:
                logits.append(model(normalise(pixels.to(device))).float().cpu())
                if tap is not None:
                    features.append(tap.features.float().cpu())
    finally:
        for part, mode in modes.items():  # parts that are frozen stay so
            part.training = mode
    return torch.cat(logits), torch.cat(features) if features else torch.empty(0)
