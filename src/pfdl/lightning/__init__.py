"""PFDL with Lightning: a ready classifier and its data, and callbacks for modules of your own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from pfdl._internal.processes import run_on_first, world_size
from pfdl.contexts import InferredContexts, find_contexts
from pfdl.decorrelation import PartialDecorrelation

try:
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.strategies import FSDPStrategy

    from pfdl.vision.classifier import Classifier
    from pfdl.vision.config import ACCURACY, WORST_GROUP
    from pfdl.vision.features import FeatureTap, attach
    from pfdl.vision.loading import EpochSampler, balanced_order
    from pfdl.vision.metrics import judge, validation_metrics
    from pfdl.vision.sharding import is_sharded, shard, share_buffers
    from pfdl.vision.training_data import TrainingData
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"pfdl.lightning needs the package {error.name}, which is not installed: pip install 'pfdl[images]' brings all "
        "that images need."
    ) from error

__all__ = ["ContextCallback", "ContextDataModule", "ImageClassifier", "PFDLCallback"]


class ContextDataModule(TrainingData, LightningDataModule):
    """The data of a training as a ``LightningDataModule``; arguments and attributes are those of ``TrainingData``."""


class ImageClassifier(Classifier, LightningModule):
    """A backbone that is trained on an objective, as a ``LightningModule``.

    Arguments and attributes are those of :class:`pfdl.vision.Classifier`. Logged at the end of each epoch:
    ``train_loss``, ``train_accuracy``, ``effective_sample_size`` (of a batch, under the objective's weighting),
    ``val_loss``, ``val_accuracy``, ``val_worst_class`` and, where the contexts of the validation images are known or
    inferred, ``val_worst_group`` and ``val_average_over_groups``; and what the penalties report, such as ``L_decorr``
    of PFDL. The cosine schedule ends at the config's last epoch; give the trainer as many.

    Example:
        >>> import torch
        >>> from pfdl.vision import TrainingConfig
        >>> model = ImageClassifier(TrainingConfig("mlp", "pfdl", image_size=8), num_classes=3)
        >>> model(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 3])
    """

    _judged: tuple[Tensor, ...] = ()

    def setup(self, stage: str) -> None:
        """Refuse a strategy that would take g apart.

        Raises:
            ValueError: If the trainer's strategy is Lightning's older FSDP.
        """
        if isinstance(self.trainer.strategy, FSDPStrategy):
            raise ValueError(
                "strategy='fsdp' of Lightning shards the whole module, and g, which has an optimiser of its own, with "
                "it; use ModelParallelStrategy(data_parallel_size=..., tensor_parallel_size=1), which shards the "
                "backbone alone."
            )

    def configure_model(self) -> None:
        """Let each process hold a part of the backbone, under ``ModelParallelStrategy``."""
        if self.device_mesh is not None and not is_sharded(self.backbone):
            shard(self.backbone, self.device_mesh["data_parallel"])

    def on_fit_start(self) -> None:
        """Lay out convolutions as the tensor cores of a GPU read them."""
        if self.device.type == "cuda" and not is_sharded(self.backbone):
            self.backbone.to(memory_format=torch.channels_last)

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor | None:
        """Return the objective on one batch."""
        self.check_contexts(batch[2] if len(batch) > 2 else None)
        return self.loss_of(batch)

    def on_train_epoch_end(self) -> None:
        """Log the means of the epoch."""
        self._log_epoch(self.means.compute(), on_bar=("train_loss", "train_accuracy"))
        self.means.reset()

    def on_validation_start(self) -> None:
        """Validate the same model in all processes; not every way to train leaves them with equal buffers."""
        if world_size() > 1:
            share_buffers(self.backbone)

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        """Judge the predictions by plain cross-entropy and accuracy, whatever the objective."""
        self._judged += (judge(self(batch[0]), batch),)

    def on_validation_epoch_end(self) -> None:
        """Log loss and accuracy, that of the worst class, and of the worst group where contexts are known."""
        if self._judged:
            found = validation_metrics(torch.cat(self._judged, 1), self.trainer.val_dataloaders)
            self._log_epoch(found, on_bar=("val_loss", ACCURACY, WORST_GROUP))
        self._judged = ()

    def configure_optimizers(self) -> Any:
        """Return the optimiser of the backbone and the schedule; g has an optimiser of its own."""
        optimizer = self.make_optimizer()
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, self.decay)]

    def _log_epoch(self, values: Mapping[str, float], *, on_bar: Sequence[str]) -> None:
        """Log with the epoch as the x axis of loggers; the number of steps would start at 0 again after a stop."""
        for name, value in {**values, "step": float(self.current_epoch)}.items():
            number = torch.tensor(value, device=self.device, dtype=torch.float32)
            self.log(name, number, prog_bar=name in on_bar, batch_size=1, sync_dist=True)


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
