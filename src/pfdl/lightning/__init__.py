"""PFDL with Lightning: a ready classifier, and a callback for modules of your own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pfdl._internal.processes import world_size
from pfdl.decorrelation import PartialDecorrelation

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import FSDPStrategy

    from pfdl.vision.classifier import Classifier
    from pfdl.vision.features import FeatureTap, attach
    from pfdl.vision.metrics import judge, validation_metrics
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"pfdl.lightning needs the package {error.name}, which is not installed; the"
        " extra 'images' of pfdl brings all that images need."
    ) from error

__all__ = ["ImageClassifier", "PFDLCallback"]


class ImageClassifier(Classifier, LightningModule):
    """A backbone that is trained on an objective, as a ``LightningModule``.

    Arguments and attributes are those of :class:`pfdl.vision.Classifier`. Logged at the end of each
    epoch are the means of ``train_loss``, ``train_accuracy`` and what the objective reports, such
    as ``L_decorr`` of PFDL; and of one loader of validation images ``val_loss``, ``val_accuracy``,
    ``val_worst_class`` and, where its batches have contexts, ``val_worst_group`` and
    ``val_average_over_groups``. The schedule is that of the config; give the trainer as many
    epochs.

    Example:
        >>> import torch
        >>> from pfdl.vision import TrainingConfig
        >>> model = ImageClassifier(TrainingConfig("mlp", "pfdl", image_size=8), num_classes=3)
        >>> model(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 3])
    """

    def setup(self, stage: str) -> None:
        """Refuse a strategy that would take g apart."""
        if isinstance(self.trainer.strategy, FSDPStrategy):
            raise ValueError(
                "strategy='fsdp' of Lightning shards g, which has an optimiser of its own, with the"
                " backbone; use ModelParallelStrategy, and shard self.backbone alone in"
                " configure_model."
            )

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor | None:
        """Return the objective on one batch."""
        self.check_contexts(batch[2] if len(batch) > 2 else None)
        return self.loss_of(batch)

    def on_train_epoch_end(self) -> None:
        """Log the means of the epoch."""
        self.log_dict(self.means.compute(), sync_dist=True)
        self.means.reset()

    def on_validation_epoch_start(self) -> None:
        """Forget the images judged before."""
        self._judged: list[Tensor] = []

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        """Judge the predictions by plain cross-entropy and accuracy, whatever the objective."""
        images, labels, *further = batch
        self._judged.append(
            judge(self(images), labels, further[0] if further else torch.full_like(labels, -1))
        )

    def on_validation_epoch_end(self) -> None:
        """Log loss and accuracy, that of the worst class, and of the worst group where contexts are
        known.
        """
        loader: Any = self.trainer.val_dataloaders
        self.log_dict(
            validation_metrics(torch.cat(self._judged, 1), len(loader.dataset)), sync_dist=True
        )

    def configure_optimizers(self) -> Any:
        """Return the optimiser of the backbone and the schedule; g has an optimiser of its own."""
        optimizer = self.make_optimizer()
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, self.decay)]


class PFDLCallback(Callback):
    """Add L_decorr to the loss of your own module, which stays as it is.

    ::

        Trainer(callbacks=[PFDLCallback()]).fit(your_module, your_data)

    The features are the input of the module's last linear layer, or of the layer you name. In each
    training step g is fitted to them and λ·L_decorr is added to the loss that ``training_step``
    returned. ``L_g``, ``L_decorr`` and ``R2`` are logged. A batch of one sample, where no other
    process has more, has no correlation: its loss stays as it is, with a warning. The state of g is
    part of Lightning's checkpoints; the weights of your module do not contain g.

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
                f"{type(pl_module).__name__} optimises manually, so there is no loss that this"
                " callback could add to; call pfdl.PartialDecorrelation in its training_step"
                " instead."
            )
        self._tap = attach(pl_module, self.layer)
        if self._tap.num_features is None:
            raise ValueError(
                f"the layer {self.layer!r} does not tell the width of its input; name a linear"
                " layer."
            )
        if self.decorrelate is None:
            self.decorrelate = PartialDecorrelation(
                self._tap.num_features, self.weight, **self.settings
            )
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
            warnings.warn(
                "a batch of one sample is trained without the penalty of PFDL.", stacklevel=1
            )
            return features.new_zeros(())
        penalty: Tensor = self.decorrelate(features)
        for name, value in self.decorrelate.metrics().items():
            pl_module.log(name, value, on_step=False, on_epoch=True, batch_size=len(features))
        return penalty
