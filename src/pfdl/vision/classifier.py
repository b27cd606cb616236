"""A ready LightningModule: any backbone, any objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F

from pfdl._internal.validation import check_count
from pfdl.objectives import Objective, make_objective
from pfdl.vision.backbones import make_backbone
from pfdl.vision.datamodule import ContextDataModule
from pfdl.vision.features import attach
from pfdl.vision.pixels import mirror_and_shift, normalise


class ImageClassifier(LightningModule):
    """A backbone that is trained on an objective.

    The backbone stays a plain classifier: its features are read where they enter its last linear layer. Batches are
    (images, labels) or (images, labels, environments); images of bytes are normalised here, others are taken as they
    are. The schedule is the paper's: SGD with a learning rate of 0.01, a tenth of it after every 80 epochs. The paper
    names neither momentum nor weight decay; the defaults are those of the ResNet paper.

    Logged, as means over each epoch: ``train_loss``, ``train_accuracy``, ``effective_sample_size`` (of a batch, under
    the objective's weighting), ``val_loss`` and ``val_accuracy``; and what the penalties report, such as PFDL's
    ``L_g``, ``L_decorr`` and ``R2`` of g.

    Args:
        backbone: A name for :func:`pfdl.vision.backbones.make_backbone`, or a classifier of your own.
        num_classes: Number of classes; required with a name.
        objective: A name for :func:`pfdl.make_objective` such as ``"erm"`` or ``"pfdl"``, or an objective.
        objective_settings: Settings of the parts of a named objective: ``{"pfdl": {"weight": 0.1}}``.
        image_size: Height and width of the images, for backbones that must know.
        small_stem: See :func:`pfdl.vision.backbones.make_backbone`.
        pretrained: Likewise.
        learning_rate: Of SGD, at the start.
        momentum: Of SGD.
        weight_decay: Of SGD.
        decay_every: Number of epochs after which the learning rate falls to a tenth.
        augment: Mirror and shift training images at random.

    Raises:
        ValueError: If the parts do not fit together.

    Attributes:
        backbone: The classifier, from normalised images to logits.
        objective: What it is trained on.

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
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        decay_every: int = 80,
        augment: bool = True,
    ) -> None:
        super().__init__()
        check_count("decay_every", decay_every, 1)
        if isinstance(backbone, str):
            if num_classes is None:
                raise ValueError(f"num_classes is missing; the backbone {backbone!r} needs to know it.")
            backbone = make_backbone(
                backbone, num_classes, image_size=image_size, small_stem=small_stem, pretrained=pretrained
            )
        elif small_stem or pretrained:
            raise ValueError("small_stem and pretrained are for backbones by name; change your own before passing it.")
        self.backbone = backbone
        self._tap = attach(backbone)
        if self._tap.num_features is None:
            raise AssertionError(self._tap.layer_name)  # without a layer's name only linear layers are found
        if isinstance(objective, str):
            settings: dict[str, Any] = dict(objective_settings or {})
            objective = make_objective(objective, self._tap.num_features, num_classes=num_classes, **settings)
        elif objective_settings:
            raise ValueError("objective_settings are for objectives by name; give your own its settings directly.")
        self.objective = objective
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.decay_every = decay_every
        self.augment = augment

    def forward(self, images: Tensor) -> Tensor:
        """The logits of images, normalised or as bytes."""
        pixels = normalise(images)
        if pixels.is_cuda and pixels.dim() == 4:  # the layout that tensor cores read; results stay the same
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.backbone(pixels)
        return logits

    def on_fit_start(self) -> None:
        """On a GPU, lay out convolutions as its tensor cores read them; let the weighting see all training samples."""
        if self.device.type == "cuda":
            self.backbone.to(memory_format=torch.channels_last)
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, ContextDataModule) and "environments" in self.objective.weighting.needs:
            images = data.train_set
            self.objective.weighting.prepare(images.labels.to(self.device), images.contexts.to(self.device))

    @torch.no_grad()
    def embed(self, images: Tensor, batch_size: int = 256) -> Tensor:
        """The features of images, shape (n, p), on the CPU; the module is in ``eval()`` mode meanwhile."""
        if self._trainer is not None:  # which asks for features before it moves the module where it trains
            self.to(self.trainer.strategy.root_device)
        training = self.training
        self.eval()
        parts = []
        for batch in torch.split(images, batch_size):
            self(batch.to(self.device))
            parts.append(self._tap.features.float().cpu())
        self.train(training)
        return torch.cat(parts)

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        """The objective on one batch."""
        images, labels, *environments = batch
        logits = self(mirror_and_shift(images) if self.augment else images)
        with torch.autocast(logits.device.type, enabled=False):
            loss: Tensor = self.objective(
                logits.float(),
                labels,
                features=self._tap.features.float(),
                environments=self._environments(environments),
            )
        self._log_means("train", len(labels), loss=loss.detach(), accuracy=_accuracy(logits, labels))
        self._log_parts(len(labels))
        return loss

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        """Plain cross-entropy and accuracy, whatever the objective."""
        images, labels, *_ = batch
        logits = self(images)
        self._log_means(
            "val", len(labels), loss=F.cross_entropy(logits.float(), labels), accuracy=_accuracy(logits, labels)
        )

    def configure_optimizers(self) -> Any:
        """SGD on the backbone and the paper's schedule; g has an optimiser of its own."""
        optimizer = torch.optim.SGD(
            self.backbone.parameters(), self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, self.decay_every, gamma=0.1)]

    def _environments(self, given: Sequence[Tensor]) -> Tensor | None:
        if not self.objective.needs_contexts:
            return None
        if not given or bool((given[0] < 0).any()):
            raise ValueError(
                "this objective needs the context of every image, but the batch does not have it; pass "
                "ContextDataModule(..., contexts='known') or contexts='inferred', or choose another objective."
            )
        return given[0]

    def _log_parts(self, batch_size: int) -> None:
        """Log what the parts of the objective report, as tensors: nothing waits for the device."""
        for name, value in self.objective.metrics().items():
            self.log(name, value, on_step=False, on_epoch=True, batch_size=batch_size)

    def _log_means(self, stage: str, batch_size: int, **values: Tensor) -> None:
        for name, value in values.items():
            self.log(
                f"{stage}_{name}",
                value,
                on_step=False,
                on_epoch=True,
                prog_bar=True,
                batch_size=batch_size,
                sync_dist=stage == "val",  # early stopping must decide alike in all processes
            )


def _accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(1) == labels).float().mean()
