"""The classifier and its data for a Lightning trainer of your own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor

from pfdl._internal.processes import world_size
from pfdl.vision.classifier import Classifier
from pfdl.vision.config import ACCURACY, WORST_GROUP
from pfdl.vision.metrics import judge, validation_metrics
from pfdl.vision.sharding import is_sharded, shard, share_buffers
from pfdl.vision.training_data import TrainingData


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
