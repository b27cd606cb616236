"""Reach the features of any classifier without changing it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from torch import Tensor, nn


class FeatureTap:
    """The input of one layer of a model, as of the model's last forward pass. Made by :func:`attach`.

    Attributes:
        layer_name: Which layer is watched.
        num_features: The width of its input if the layer tells it (as ``nn.Linear`` does), else None.
    """

    def __init__(self, layer: nn.Module, layer_name: str) -> None:
        self.layer_name = layer_name
        self.num_features: int | None = getattr(layer, "in_features", None)
        self._seen: Tensor | None = None
        self._hook = layer.register_forward_pre_hook(self._remember)

    def _remember(self, _layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._seen = inputs[0]

    @property
    def features(self) -> Tensor:
        """U, shape (n, p), with its graph, of the last forward pass."""
        if self._seen is None:
            raise RuntimeError(
                f"no features yet: layer {self.layer_name!r} has not run since it was attached. "
                "Call the model first, then read .features."
            )
        if self._seen.ndim != 2:
            raise ValueError(
                f"layer {self.layer_name!r} takes an input of shape {tuple(self._seen.shape)}; features are "
                "(batch, features). Attach to a layer after pooling and flattening, with layer='its.name'."
            )
        return self._seen

    def detach(self) -> None:
        """Take the hook off: the model is as it was."""
        self._hook.remove()
        self._seen = None

    def __enter__(self) -> FeatureTap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


def attach(model: nn.Module, layer: str | nn.Module | None = None) -> FeatureTap:
    """Watch the features that enter the last linear layer of a classifier.

    The model is not changed: a hook notes the layer's input at each forward pass. For inference use the model as
    it is::

        tap = pfdl.attach(model)
        decorrelate = pfdl.PartialDecorrelation(tap.num_features)
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels) + decorrelate(tap.features)

    Args:
        model: Any ``nn.Module``, for instance from torchvision or timm.
        layer: The layer whose input are the features, by name (as in ``model.named_modules()``) or the module
            itself. By default what ``model.get_classifier()`` gives where there is such a method and it gives a
            linear layer (timm), else the last ``nn.Linear``.

    Returns:
        A :class:`FeatureTap`; read its ``features`` after a forward pass. It is also a context manager that takes
        the hook off at the end. Layers that run more than once in a pass give their last input.

    Raises:
        ValueError: If there is no such layer.

    Example:
        >>> import torch, pfdl
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
        >>> tap = pfdl.attach(model)
        >>> logits = model(torch.ones(2, 8))
        >>> tap.layer_name, tap.num_features, tap.features.shape
        ('2', 5, torch.Size([2, 5]))
    """
    name, found = _find(model, layer)
    return FeatureTap(found, name)


def _find(model: nn.Module, layer: str | nn.Module | None) -> tuple[str, nn.Module]:
    modules = dict(model.named_modules())
    linear = {name: module for name, module in modules.items() if isinstance(module, nn.Linear)}
    wanted = layer
    if wanted is None:
        ask: Callable[[], object] = getattr(model, "get_classifier", lambda: None)
        classifier = ask()
        wanted = classifier if isinstance(classifier, nn.Linear) else next(reversed(linear.values()), None)
        if wanted is None:
            raise ValueError(
                f"{type(model).__name__} has no linear layer whose input could be the features; "
                "name the layer that takes them: attach(model, layer='its.name')."
            )
    if isinstance(wanted, str):
        if wanted not in modules:
            raise ValueError(
                f"{type(model).__name__} has no layer {wanted!r}; its linear layers are: {', '.join(linear) or 'none'}."
            )
        return wanted, modules[wanted]
    for name, module in modules.items():
        if module is wanted:
            return name, module
    raise ValueError(f"the {type(wanted).__name__} given as layer is not a part of this {type(model).__name__}.")
