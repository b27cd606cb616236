"""A backbone with the objective that it is trained on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from pfdl._internal.loading import AtomicModule
from pfdl._internal.processes import world_size
from pfdl.objectives import Objective, make_objective
from pfdl.vision.backbones import make_backbone
from pfdl.vision.config import TrainingConfig
from pfdl.vision.features import attach
from pfdl.vision.metrics import RunningMeans
from pfdl.vision.pixels import crop_and_colour, mirror_and_shift, normalise


class Classifier(AtomicModule):
    """A backbone that is trained on an objective.

    The backbone stays a plain classifier: its features are read where they enter its last linear
    layer. Batches are (images, labels) or (images, labels, environments); images of bytes are
    normalised here, others are taken as they are. A batch of one image is skipped with a warning,
    unless other processes train with it.

    Args:
        config: How it is trained; the backbone and the objective are those that it names.
        num_classes: Number of classes; required for a backbone by name.
        backbone: A classifier of your own instead.
        objective: An objective of your own, or the name of another, instead.
        layer: The layer of your own backbone whose input are the features, as in
            :func:`pfdl.attach`.
        input_features: For a backbone by name that takes features in place of images, their width.

    Raises:
        ValueError: If the parts do not fit together, or the backbone cannot take images of this
            size.

    Attributes:
        config: How it is trained.
        backbone: The classifier, from normalised images to logits.
        objective: What it is trained on.
        tap: Gives the features of the last forward pass; its ``detach()`` leaves a backbone of your
            own as it was.
        means: The running means over this epoch of loss, accuracy and what the objective reports.
        reported: Their names in the last batch.

    Example:
        >>> import torch
        >>> model = Classifier(TrainingConfig("mlp", "pfdl", image_size=8), num_classes=3)
        >>> model(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        config: TrainingConfig,
        num_classes: int | None = None,
        *,
        backbone: nn.Module | None = None,
        objective: Objective | str | None = None,
        layer: str | nn.Module | None = None,
        input_features: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        named = {name: getattr(config, name) for name in ("small_stem", "pretrained", "weights")}
        is_named = backbone is None
        if backbone is not None:
            if any(named.values()):
                raise ValueError(
                    "small_stem, pretrained and weights are for backbones by name; change your own"
                    " before passing it."
                )
        elif num_classes is None:
            raise ValueError(f"num_classes is missing; the backbone {config.backbone!r} needs it.")
        else:
            backbone = make_backbone(
                config.backbone,
                num_classes,
                image_size=config.image_size,
                num_features=input_features,
                **named,
            )
        self.backbone = backbone
        self.tap = attach(backbone, layer)
        if is_named and not input_features:
            self._try_out()
        if objective is None or isinstance(objective, str):
            settings: dict[str, Any] = dict(config.objective_settings)
            objective = make_objective(
                objective or config.objective,
                self.num_features,
                num_classes=num_classes,
                label_smoothing=config.label_smoothing,
                **settings,
            )
        elif config.objective_settings or config.label_smoothing:
            raise ValueError(
                "objective_settings and label_smoothing are for objectives by name; give your own"
                " its settings itself."
            )
        self.objective = objective
        self.means = RunningMeans()
        self.reported: tuple[str, ...] = ()

    @property
    def num_features(self) -> int:
        """The width of what enters the last layer."""
        if self.tap.num_features is None:
            raise ValueError(
                f"the layer {self.tap.layer_name!r} does not tell the width of its input; name"
                " another."
            )
        return self.tap.num_features

    def forward(self, images: Tensor, network: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the logits of images, normalised or as bytes.

        Args:
            images: Shape (n, 3, h, w); or what else a backbone of your own takes.
            network: What calls the backbone, where several processes or mixed precision wrap it.
        """
        pixels = normalise(images)
        if pixels.is_cuda and pixels.dim() == 4:
            # The layout that tensor cores read; results stay the same
            pixels = pixels.contiguous(memory_format=torch.channels_last)
        return (network or self.backbone)(pixels)

    def prepare(self, labels: Tensor, contexts: Tensor) -> None:
        """Show the objective the labels and contexts of all training images, shape (n,) each.

        Optional: without it a weighting such as ``balance`` counts the images of the batches as
        they come.
        """
        if self.objective.needs_contexts:
            self.objective.prepare(labels, contexts)

    def check_contexts(self, contexts: Tensor | None) -> None:
        """Raise ValueError unless there are the contexts that the objective needs."""
        if self.objective.needs_contexts and (contexts is None or bool((contexts < 0).any())):
            raise ValueError(
                "this objective needs the context of every sample, but not all are known; train"
                " with contexts='known' or contexts='inferred', or choose another objective."
            )

    def loss_of(
        self,
        batch: Sequence[Tensor],
        network: Callable[[Tensor], Tensor] | None = None,
        *,
        is_augmented: bool = False,
    ) -> Tensor | None:
        """Return the objective on one batch, which is added to the means of the epoch; None if it
        is skipped.

        Args:
            batch: Images, labels and, if there are any, contexts, and then the numbers of the
                samples.
            network: As in :meth:`forward`.
            is_augmented: Whether the images are augmented already.
        """
        images, labels, *further = batch
        if len(labels) < 2 and world_size() == 1:
            warnings.warn(
                "a batch of one image is skipped; drop_last=True in the loader avoids it.",
                stacklevel=1,
            )
            return None
        if not is_augmented and images.dim() == 4:
            images = self._augmented(images)
        logits = self(images, network)
        with torch.autocast(logits.device.type, enabled=False):
            features = self.tap.features.float()
            loss: Tensor = self.objective(
                logits.float(),
                labels,
                features=features,
                environments=further[0] if further and self.objective.needs_contexts else None,
                **({"indices": further[1]} if len(further) > 1 else {}),
            )
        right = (logits.argmax(1) == labels).mean(dtype=torch.float32)
        reported = {"train_loss": loss, "train_accuracy": right, **self.objective.metrics()}
        self.reported = tuple(reported)
        self.means.add(reported, len(labels))
        return loss

    def _augmented(self, images: Tensor) -> Tensor:
        if self.config.augment == "flip-shift":
            return mirror_and_shift(images)
        if self.config.augment == "crops":
            return crop_and_colour(images)
        return images

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimiser of the backbone, in one kernel where PyTorch can; g has an optimiser
        of its own.
        """
        config = self.config
        parameters = list(self.backbone.parameters())
        is_sharded = isinstance(self.backbone, FSDPModule)
        can_fuse = not is_sharded and {parameter.device.type for parameter in parameters} <= {
            "cpu",
            "cuda",
        }
        common: dict[str, Any] = {
            "weight_decay": config.weight_decay,
            "fused": True if can_fuse else None,
        }
        if config.optimizer == "sgd":
            return torch.optim.SGD(
                parameters, config.learning_rate, momentum=config.momentum, **common
            )
        return torch.optim.AdamW(parameters, config.learning_rate, **common)

    def decay(self, epoch: int) -> float:
        """Return the part of the learning rate that an epoch trains with."""
        if epoch < self.config.warmup_epochs:
            return (epoch + 1) / (self.config.warmup_epochs + 1)
        if self.config.schedule == "step":
            return float(
                0.1 ** (epoch // (self.config.decay_every or max(1, self.config.epochs // 2)))
            )
        return 0.5 + 0.5 * math.cos(math.pi * min(epoch / self.config.epochs, 1.0))

    def _try_out(self) -> None:
        """Raise unless the backbone takes images of this size and its features can be read."""
        name = self.config.backbone
        size = self.config.image_size
        self.backbone.eval()
        try:
            with torch.no_grad():
                self.backbone(torch.zeros(1, 3, size, size))
            width = self.tap.features.shape[1]
        except (AssertionError, RuntimeError, ValueError, IndexError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"the backbone {name!r} cannot be trained on images of {size}×{size} pixels"
                f" ({reason}); choose another image size or another backbone."
            ) from None
        finally:
            self.backbone.train()
        if width != self.num_features:
            raise ValueError(
                f"the last layer of {name!r} takes {width} features, not {self.num_features}."
            )
