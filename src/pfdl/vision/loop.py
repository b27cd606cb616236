"""The loop of every training: epochs of steps, on one device or several, with or without a run
folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor
from torch.utils.data import DataLoader

from pfdl._internal.processes import rank, world_size
from pfdl.vision.classifier import Classifier
from pfdl.vision.launching import make_fabric
from pfdl.vision.loading import EpochLoader, EpochSampler, TensorBatches
from pfdl.vision.metrics import judge, validation_metrics


class Loop:
    """Train a classifier, epoch by epoch.

    What a step draws at random follows from the seed, the epoch and the step alone. So a training
    that resumes draws what it would have drawn, and trainings of one seed share augmentation
    whatever their objectives draw.

    Args:
        model: What is trained, in place; its config says how.
        batches: What it is trained on: images, labels, contexts and, where the objective needs
            them, indices.
        fabric: Where it is trained: the device, the precision, and the processes that train
            together.

    Attributes:
        optimizer: The optimiser of the backbone.
        epoch: The epoch in work, from 0.
        step: The number of its steps that are done.
    """

    def __init__(
        self, model: Classifier, batches: EpochLoader | TensorBatches, fabric: Fabric
    ) -> None:
        self.model = model.to(fabric.device)
        self.batches = batches
        self.fabric = fabric
        if fabric.device.type == "cuda" and not isinstance(fabric.strategy, ModelParallelStrategy):
            # The layout that tensor cores read; weights that are divided keep their own.
            model.backbone.to(memory_format=torch.channels_last)
        self.network = fabric.setup_module(model.backbone, move_to_device=False)
        self.optimizer = model.make_optimizer()
        self.epoch = self.step = 0

    @property
    def learning_rate(self) -> float:
        """The learning rate of the epoch in work."""
        return self.model.config.learning_rate * self.model.decay(self.epoch)

    @property
    def progress(self) -> tuple[int, int]:
        """The number of steps that are done, and of all steps."""
        steps = len(self.batches)
        return self.epoch * steps + self.step, self.model.config.epochs * steps

    def train_epoch(self) -> Iterator[None]:
        """Train the rest of the epoch in work; pause after each step, so that the caller can save
        or show something.
        """
        if self.step == 0 and "indices" in self.model.objective.weighting.needs:
            self._fit_weighting()
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        # Each process draws its own; the first draws what a single one would.
        place = [self.model.config.seed, self.epoch, *([rank()] if rank() else [])]
        seeds = np.random.SeedSequence(place).generate_state(len(self.batches)).tolist()
        for batch in self.batches.read(self.epoch, self.step):
            self._seed(seeds[self.step])
            loss = self.model.loss_of(
                [part.to(self.fabric.device, non_blocking=True) for part in batch], self.network
            )
            if loss is not None:
                self.optimizer.zero_grad()
                self.fabric.backward(loss)
                self.optimizer.step()
            self.step += 1
            yield

    @torch.no_grad()
    def _fit_weighting(self) -> None:
        """Show a weighting of the whole training set, such as DWR, the features of all its
        samples.
        """
        self.model.eval()
        features = []
        for images, *_ in self.batches.all_samples():
            with self.fabric.autocast():
                self.model(images.to(self.fabric.device, non_blocking=True))
            features.append(self.model.tap.features.float())
        with torch.enable_grad():
            self.model.objective.weighting.fit(torch.cat(features))

    def _seed(self, number: int) -> None:
        # torch.manual_seed visits every kind of device: 0.3 ms a step
        torch.default_generator.manual_seed(number)
        if self.fabric.device.type == "cuda":
            torch.cuda.manual_seed(number)

    @torch.no_grad()
    def validate(self, loader: DataLoader[Any] | None) -> dict[str, float]:
        """Return plain loss and accuracies on validation images; nothing if there are none."""
        if loader is None:
            return {}
        if world_size() > 1:  # not every way to train leaves processes with equal buffers
            for buffer in self.model.backbone.buffers():
                dist.broadcast(buffer, 0)
        self.model.eval()
        judged = []
        for batch in loader:
            images, labels, contexts = (
                part.to(self.fabric.device, non_blocking=True) for part in batch[:3]
            )
            with self.fabric.autocast():
                judged.append(judge(self.model(images), labels, contexts))
        return validation_metrics(torch.cat(judged, 1), len(loader.dataset))  # type: ignore[arg-type]

    def end_epoch(self) -> dict[str, float]:
        """Go on to the next epoch, and return the means of the one that ended."""
        means = self.model.means.compute()
        self.model.means.reset()
        self.epoch, self.step = self.epoch + 1, 0
        return means


def fit(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    contexts: Tensor | None = None,
    *,
    draws: Tensor | None = None,
    device: str = "cpu",
    after_epoch: Callable[[int, dict[str, float]], None] | None = None,
) -> dict[str, float]:
    """Train a classifier on images in memory, without a run folder; the last epoch counts.

    For many small trainings side by side on one device: all images lie there, and a training starts
    in a tenth of a second. :func:`pfdl.vision.train` reads images from disk, keeps a run folder and
    resumes.

    Args:
        model: What is trained, in place; its config says how.
        images: Bytes or normalised, shape (n, 3, h, w); or what else the backbone takes.
        labels: The classes, shape (n,).
        contexts: What the objective and the sampler may know of the context of each image, shape
            (n,).
        draws: How often the sampler ``"shuffle"`` draws each image relative to the others, shape
            (n,); by default each comes once an epoch.
        device: Where to train.
        after_epoch: Called with the number of epochs that are done and the means of the last one.

    Returns:
        The means of the last epoch: loss, accuracy and what the objective reports.

    Raises:
        ValueError: If the objective or the sampler needs contexts that are not there, or a batch
            cannot be used.

    Example:
        >>> from pfdl.vision import Classifier, TrainingConfig
        >>> images, labels = torch.randint(256, (32, 3, 8, 8)).byte(), torch.arange(32) % 2
        >>> model = Classifier(
        ...     TrainingConfig("mlp", "erm", image_size=8, epochs=2, batch_size=8), num_classes=2
        ... )
        >>> sorted(fit(model, images, labels))
        ['effective_sample_size', 'effective_share', 'train_accuracy', 'train_loss']
    """
    if contexts is None:
        contexts = torch.full_like(labels, -1)
    if model.config.sampler == "groups" and bool((contexts < 0).any()):
        raise ValueError("the sampler 'groups' needs the context of every sample; give contexts=….")
    model.check_contexts(contexts)
    fabric = make_fabric(device, precision=model.config.precision)
    sampler = EpochSampler(model.config, labels.cpu(), contexts.cpu(), draws)
    indices = [torch.arange(len(labels))] if "indices" in model.objective.needs else []
    parts = [part.to(fabric.device) for part in (images, labels, contexts, *indices)]
    loop = Loop(model, TensorBatches(parts, model.config.batch_size, sampler), fabric)
    model.prepare(*parts[1:3])
    means: dict[str, float] = {}
    while loop.epoch < model.config.epochs:
        for _ in loop.train_epoch():
            pass
        means = loop.end_epoch()
        if after_epoch is not None:
            after_epoch(loop.epoch, means)
    return means
