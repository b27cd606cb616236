"""A ready LightningModule: any backbone, any objective."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl._internal.devices import full_precision
from pfdl._internal.modules import AtomicModule
from pfdl._internal.processes import world_size
from pfdl._internal.validation import check_choice, check_count
from pfdl.contexts import group_accuracy, worst_group_accuracy
from pfdl.objectives import Objective, make_objective
from pfdl.vision.backbones import make_backbone
from pfdl.vision.features import attach
from pfdl.vision.metrics import ACCURACY, GROUP_AVERAGE, WORST_CLASS, WORST_GROUP, RunningMeans, of_all_processes
from pfdl.vision.pixels import AUGMENTATIONS, normalise
from pfdl.vision.sharding import is_sharded, shard, share_buffers

OPTIMIZERS, SCHEDULES = ("sgd", "adamw"), ("step", "cosine")


class ImageClassifier(AtomicModule, LightningModule):
    """A backbone that is trained on an objective.

    The backbone stays a plain classifier: its features are read where they enter its last linear layer. Batches are
    (images, labels) or (images, labels, environments); images of bytes are normalised here, others are taken as they
    are. A batch of one image is skipped with a warning, unless other processes train with it. The default schedule is
    the paper's: SGD with a learning rate of 0.01, a tenth of it after every 80 epochs. The paper names neither momentum
    nor weight decay; the defaults are those of the ResNet paper.

    Logged at the end of each epoch: ``train_loss``, ``train_accuracy``, ``effective_sample_size`` (of a batch, under
    the objective's weighting), ``val_loss``, ``val_accuracy``, ``val_worst_class`` and, where the contexts of the
    validation images are known or inferred, ``val_worst_group`` and ``val_average_over_groups``; and what the penalties
    report, such as PFDL's ``L_g``, ``L_decorr`` and ``R2`` of g.

    Args:
        backbone: A name for :func:`pfdl.vision.backbones.make_backbone`, or a classifier of your own.
        num_classes: Number of classes; required with a name.
        objective: A name for :func:`pfdl.make_objective` such as ``"erm"`` or ``"pfdl"``, or an objective.
        objective_settings: Settings of the parts of a named objective: ``{"pfdl": {"weight": 0.1}}``.
        image_size: Height and width of the images, for backbones that must know.
        small_stem: For ResNets by name, a 3×3 stem without pooling, for images up to about 64×64.
        pretrained: Start a backbone by name from its library's weights, which are downloaded.
        weights: A file of weights to start a backbone by name from.
        optimizer: ``"sgd"`` or ``"adamw"``.
        learning_rate: At the start.
        momentum: Of SGD; AdamW has none.
        weight_decay: Of the optimiser.
        schedule: ``"step"``, a tenth of the learning rate after every ``decay_every`` epochs; or ``"cosine"``, half a
            cosine from the learning rate to 0 at the trainer's last epoch.
        decay_every: Epochs per step of the schedule ``"step"``.
        augment: What training images are subjected to: ``"none"``, ``"flip-shift"`` or ``"randaugment"``.
        label_smoothing: Share of the target that is spread over all classes, from 0 to below 1.

    Raises:
        ValueError: If the parts do not fit together, or the backbone cannot take images of this size.

    Attributes:
        backbone: The classifier, from normalised images to logits.
        objective: What it is trained on.
        means: The running means of what this epoch logs.

    Example:
        >>> import torch
        >>> model = ImageClassifier("mlp", num_classes=3, objective="pfdl", image_size=8)
        >>> model(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        backbone: str | nn.Module,
        num_classes: int | None = None,
        objective: str | Objective = "erm",
        *,
        objective_settings: Mapping[str, Mapping[str, Any]] | None = None,
        image_size: int = 64,
        small_stem: bool = False,
        pretrained: bool = False,
        weights: str | Path | None = None,
        optimizer: str = "sgd",
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        schedule: str = "step",
        decay_every: int = 80,
        augment: str = "flip-shift",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("optimizer", optimizer, OPTIMIZERS)
        check_choice("schedule", schedule, SCHEDULES)
        check_choice("augment", augment, AUGMENTATIONS)
        check_count("decay_every", decay_every, 1)
        self.backbone = _make_backbone(
            backbone, num_classes, image_size=image_size, small_stem=small_stem, pretrained=pretrained, weights=weights
        )
        self._tap = attach(self.backbone)
        if isinstance(backbone, str):
            self._try_out(backbone, image_size)
        if isinstance(objective, str):
            settings: dict[str, Any] = dict(objective_settings or {})
            made = make_objective(objective, self.num_features, num_classes=num_classes, **settings)
            objective = Objective(made.penalties, made.weighting, label_smoothing=label_smoothing)
        elif objective_settings or label_smoothing:
            raise ValueError(
                "objective_settings and label_smoothing are for objectives by name; give your own its settings itself."
            )
        self.objective = objective
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.decay_every = decay_every
        self.augment = augment
        self.means = RunningMeans()
        self._validated: list[tuple[Tensor, Tensor]] = []

    @property
    def num_features(self) -> int:
        """The width of what enters the last layer."""
        if self._tap.num_features is None:
            raise AssertionError(self._tap.layer_name)  # without a layer's name only layers with a width are found
        return self._tap.num_features

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images, normalised or as bytes."""
        pixels = normalise(images)
        if pixels.is_cuda and pixels.dim() == 4:  # the layout that tensor cores read; results stay the same
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.backbone(pixels)
        return logits

    def prepare(self, labels: Tensor, contexts: Tensor) -> None:
        """Show the objective's weighting the labels and contexts of all training images, shape (n,) each.

        Optional: without it a weighting such as ``balance`` counts the images of the batches as they come.
        """
        if "environments" in self.objective.weighting.needs:
            self.objective.weighting.prepare(labels, contexts)

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
        self.check_contexts(batch)
        return self.loss_of(batch)

    def check_contexts(self, batch: Sequence[Tensor]) -> None:
        """Raise ValueError unless a batch has the contexts that the objective needs; waits for a GPU that has them."""
        if self.objective.needs_contexts and (len(batch) < 3 or bool((batch[2] < 0).any())):
            raise ValueError(
                "this objective needs the context of every image, but the batch does not have it; pass "
                "ContextDataModule(..., contexts='known') or contexts='inferred', or choose another objective."
            )

    def loss_of(self, batch: Sequence[Tensor]) -> Tensor | None:
        """Return the objective on one batch, which is added to the means of the epoch; None if it is skipped."""
        images, labels, *environments = batch
        if len(labels) < 2 and world_size() == 1:
            warnings.warn("a batch of one image is skipped; drop_last=True in the loader avoids it.", stacklevel=1)
            return None
        logits = self(AUGMENTATIONS[self.augment](images))
        with full_precision(logits.device.type):
            features = self._tap.features.float()
            loss: Tensor = self.objective(
                logits.float(),
                labels,
                features=features,
                environments=environments[0] if environments and self.objective.needs_contexts else None,
            )
        right = (logits.argmax(1) == labels).mean(dtype=torch.float32)
        self.means.add({"train_loss": loss, "train_accuracy": right, **self.objective.metrics()}, len(labels))
        return loss

    def on_train_epoch_end(self) -> None:
        """Log the means of the epoch."""
        self._log_epoch(self.means.compute(), on_bar=("train_loss", "train_accuracy"))
        self.means.reset()

    def on_validation_start(self) -> None:
        """Validate the same model in all processes; not every way to train leaves them with equal buffers."""
        if world_size() > 1:
            share_buffers(self.backbone)

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        """Log plain cross-entropy and accuracy, whatever the objective."""
        images, labels, *environments = batch
        logits = self(images)
        predictions = logits.argmax(1)
        context = environments[0] if environments else torch.full_like(labels, -1)
        numbers = torch.stack([predictions, labels.long(), context.long()])
        self._validated.append((numbers, F.cross_entropy(logits.float(), labels, reduction="none")))

    def on_validation_epoch_end(self) -> None:
        """Log loss and accuracy, that of the worst class, and of the worst group where contexts are known or inferred.

        All processes log the same: what holds for the images of all of them.
        """
        if not self._validated:
            return
        loader = self.trainer.val_dataloaders
        numbers, losses = (
            of_all_processes(torch.cat(parts, -1), loader) for parts in zip(*self._validated, strict=True)
        )
        predictions, labels, contexts = numbers
        self._validated = []
        found = {
            "val_loss": losses.mean(),
            ACCURACY: (predictions == labels).float().mean(),
            WORST_CLASS: worst_group_accuracy(predictions, labels, torch.zeros_like(labels)),
        }
        if bool((contexts >= 0).all()):
            groups = group_accuracy(predictions, labels, contexts)
            found |= {WORST_GROUP: groups.worst_group.accuracy, GROUP_AVERAGE: groups.average_over_groups}
        self._log_epoch(found, on_bar=("val_loss", ACCURACY, WORST_GROUP))

    def configure_optimizers(self) -> Any:
        """Return the optimiser of the backbone and the schedule; g has an optimiser of its own."""
        optimizer = self.make_optimizer()
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, self.make_decay())]

    def make_optimizer(self, **implementation: Any) -> torch.optim.Optimizer:
        """Return the optimiser of the backbone.

        Args:
            **implementation: Which of PyTorch's implementations it is, such as ``fused=True``.
        """
        parameters, rate, decay = self.backbone.parameters(), self.learning_rate, self.weight_decay
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, rate, momentum=self.momentum, weight_decay=decay, **implementation)
        return torch.optim.AdamW(parameters, rate, weight_decay=decay, **implementation)

    def make_decay(self) -> Callable[[int], float]:
        """Return the function from an epoch to the part of the learning rate that it trains with."""
        if self.schedule == "step":
            every = self.decay_every
            return lambda epoch: 0.1 ** (epoch // every)
        epochs = max(self.trainer.max_epochs or 1, 1)
        return lambda epoch: 0.5 + 0.5 * math.cos(math.pi * min(epoch / epochs, 1.0))

    def _log_epoch(self, values: Mapping[str, Tensor | float], *, on_bar: Sequence[str]) -> None:
        """Log with the epoch as the x axis of loggers; the number of steps would start at 0 again after a stop."""
        for name, value in {**values, "step": float(self.current_epoch)}.items():
            number = torch.as_tensor(value, device=self.device, dtype=torch.float32)
            self.log(name, number, prog_bar=name in on_bar, batch_size=1, sync_dist=True)

    def _try_out(self, name: str, image_size: int) -> None:
        """Raise unless the backbone takes images of this size and its features can be read."""
        self.backbone.eval()
        try:
            with torch.no_grad():
                self.backbone(torch.zeros(1, 3, image_size, image_size))
            width = self._tap.features.shape[1]
        except (AssertionError, RuntimeError, ValueError, IndexError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"the backbone {name!r} cannot be trained on images of {image_size}×{image_size} pixels ({reason}); "
                "choose another image size or another backbone."
            ) from None
        finally:
            self.backbone.train()
        if width != self.num_features:
            raise ValueError(f"the last layer of {name!r} takes {width} features, not {self.num_features}.")


def _make_backbone(backbone: str | nn.Module, num_classes: int | None, **settings: Any) -> nn.Module:
    if isinstance(backbone, str):
        if num_classes is None:
            raise ValueError(f"num_classes is missing; the backbone {backbone!r} needs it.")
        return make_backbone(backbone, num_classes, **settings)
    if settings["small_stem"] or settings["pretrained"] or settings["weights"] is not None:
        raise ValueError(
            "small_stem, pretrained and weights are for backbones by name; change your own before passing it."
        )
    return backbone
