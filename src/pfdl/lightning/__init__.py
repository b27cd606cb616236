"""PFDL and balanced contexts in Lightning modules of your own, by callbacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from pfdl._internal.processes import run_on_first, world_size
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.decorrelation import PartialDecorrelation

try:
    from lightning.pytorch import Callback, LightningModule, Trainer

    from pfdl.vision.features import FeatureTap, attach
    from pfdl.vision.loading import EpochSampler, balanced_order
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"pfdl.lightning needs the package {error.name}, which is not installed: pip install 'pfdl[images]' brings all "
        "that images need."
    ) from error

__all__ = ["ContextCallback", "PFDLCallback"]


class PFDLCallback(Callback):
    """Add L_decorr to the loss of your own module, which stays as it is.

    ::

        Trainer(callbacks=[PFDLCallback()]).fit(your_module, your_data)

    The features are the input of the module's last linear layer, or of the layer you name. In each training step g is
    fitted to them and λ·L_decorr is added to the loss that ``training_step`` returned. ``L_g``, ``L_decorr`` and
    ``R2`` are logged. A batch of one sample, where no other process has more, has no correlation: its loss stays as it
    is, with a warning. The state of g is part of Lightning's checkpoints; the weights of your module do not contain g.

    Args:
        weight: λ.
        layer: The layer whose input are the features, as in :func:`pfdl.attach`: ``"model.fc"``.
        **settings: Settings of :class:`pfdl.PartialDecorrelation`.

    Attributes:
        decorrelate: The :class:`pfdl.PartialDecorrelation`, once a fit has begun.
    """

    def __init__(self, weight: float = 1.0, *, layer: str | None = None, **settings: Any) -> None:
        self.weight = weight
        self.layer = layer
        self.settings = settings
        self.decorrelate: PartialDecorrelation | None = None
        self._tap: FeatureTap | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Watch the features and wrap ``training_step``."""
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"{type(pl_module).__name__} optimises manually, so there is no loss that this callback could add to; "
                "call pfdl.PartialDecorrelation in its training_step instead."
            )
        self._tap = attach(pl_module, self.layer)
        if self._tap.num_features is None:
            raise ValueError(f"the layer {self.layer!r} does not tell the width of its input; name a linear layer.")
        if self.decorrelate is None:
            self.decorrelate = PartialDecorrelation(self._tap.num_features, self.weight, **self.settings)
        pl_module.training_step = self._with_penalty(pl_module)  # type: ignore[method-assign]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move g to the module's device."""
        if self.decorrelate is not None:
            self.decorrelate.to(pl_module.device)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was."""
        if self._tap is not None:
            self._tap.detach()
            self._tap = None
            del pl_module.training_step

    def state_dict(self) -> dict[str, Any]:
        """Return the state of g, for Lightning's checkpoints."""
        return {} if self.decorrelate is None else dict(self.decorrelate.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what :meth:`state_dict` returned."""
        if self.decorrelate is not None:
            self.decorrelate.load_state_dict(dict(state_dict))

    def _with_penalty(self, pl_module: LightningModule) -> Callable[..., Any]:
        original = pl_module.training_step

        def training_step(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            if output is None:  # the module's way to skip a batch
                return None
            if isinstance(output, Tensor):
                return output + self._penalty(pl_module)
            return {**output, "loss": output["loss"] + self._penalty(pl_module)}

        return training_step

    def _penalty(self, pl_module: LightningModule) -> Tensor:
        if self.decorrelate is None or self._tap is None:
            raise AssertionError("setup() makes both before it wraps training_step")
        features = self._tap.features
        if len(features) < 2 and world_size() == 1:
            warnings.warn("a batch of one sample is trained without the penalty of PFDL.", stacklevel=1)
            return features.new_zeros(())
        penalty: Tensor = self.decorrelate(features)
        for name, value in self.decorrelate.metrics().items():
            pl_module.log(name, value, on_step=False, on_epoch=True, batch_size=len(features))
        return penalty


class ContextCallback(Callback):
    """Infer the contexts of your training images when a fit starts, then draw them balanced.

    ::

        contexts = ContextCallback(train_set)
        loader = DataLoader(train_set, batch_size=64, sampler=contexts.sampler)
        Trainer(callbacks=[contexts]).fit(your_module, loader)

    The sampler draws all groups (one class in one context) equally often, so that the context says nothing about the
    class; where one context is found, it draws every image once an epoch. Your module and its loss stay as they are.
    The contexts are part of Lightning's checkpoints.

    Args:
        dataset: The training images: a map-style data set of (image, label, …), images as tensors of one shape.
        contexts: The context of each image, shape (n,), where they are known; by default they are inferred.
        describe: From a batch of images, shape (n, channels, h, w), to features, shape (n, p), to infer contexts from;
            by default :func:`pfdl.image_statistics`. A pretrained network's features see more.
        seed: Of inferring and of the order.

    Attributes:
        sampler: For the loader of the training images.
        contexts: The context of each image, once a fit has begun.
        inferred: How they were inferred and why they are believed; None if they were known.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        *,
        contexts: Tensor | None = None,
        describe: Callable[[Tensor], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        self.dataset = dataset
        self.contexts = contexts
        self.describe = describe
        self.seed = seed
        self.inferred: InferredContexts | None = None
        self.sampler = EpochSampler(dataset, seed=seed)
        self._labels: Tensor | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Infer the contexts, unless they are known, and balance the sampler."""
        if stage != "fit" or self._labels is not None:
            return
        samples: Any = self.dataset
        self._labels = torch.tensor([int(samples[index][1]) for index in range(self.sampler.size)])
        if self.contexts is None:
            labels = self._labels
            self.inferred = run_on_first(
                lambda: find_contexts(self.dataset, labels, describe=self.describe, seed=self.seed)
            )
            self.contexts = torch.tensor(self.inferred.contexts).long()
        elif self.contexts.shape != self._labels.shape:
            raise ValueError(
                f"contexts have shape {tuple(self.contexts.shape)} for {len(self._labels)} images; give one per image."
            )
        self.sampler.share(trainer.world_size, trainer.global_rank)
        self.sampler.order = balanced_order(self._labels, self.contexts, self.seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the contexts, for Lightning's checkpoints."""
        return {} if self.contexts is None else {"contexts": self.contexts}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what :meth:`state_dict` returned."""
        contexts = state_dict.get("contexts")
        if isinstance(contexts, Tensor) and self._labels is not None and contexts.shape == self._labels.shape:
            self.contexts = contexts
            self.sampler.order = balanced_order(self._labels, contexts, self.seed)
