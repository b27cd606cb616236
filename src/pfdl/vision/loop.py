"""The loop of every training: epochs of steps, on one device or several, with or without a run
folder.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader

from pfdl._internal.cuda_graphs import Captured, Work, capturable, own_stream, without_looking
from pfdl._internal.interleaving import pause
from pfdl._internal.processes import rank, world_size
from pfdl.vision.classifier import Classifier
from pfdl.vision.launching import make_fabric
from pfdl.vision.loading import EpochLoader, EpochSampler, TensorBatches
from pfdl.vision.metrics import judge, validation_metrics
from pfdl.vision.pixels import crop_and_colour, draw_shifts, mirror_and_shift, to_device


class Loop:
    """Train a classifier, epoch by epoch.

    What a step draws at random follows from the seed, the epoch and the step alone. So a training
    that resumes draws what it would have drawn, and trainings of one seed share augmentation
    whatever their objectives draw.

    On a GPU a whole step, from the augmentation to both optimisers and the running means, is
    recorded once and then replayed (config.capture): small images leave a GPU waiting for Python.
    Then nothing looks at values in a step; a NaN is found in the means at the end of the epoch.

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
        self._recorder = Captured(watches=True)
        self._rate: Tensor | None = None
        self._stream: torch.cuda.Stream | None = None
        if fabric.device.type == "cuda":
            self._rate = torch.zeros((), device=fabric.device)
            self._stream = torch.cuda.Stream(fabric.device)  # type: ignore[no-untyped-call]

    @property
    def pace(self) -> str:
        """How steps run on a GPU, for people: from a recording, or launch by launch and why."""
        if self._recorder.is_recorded:
            return "Steps are recorded and replayed as one launch each (CUDA graphs)."
        return f"Steps run launch by launch: {self._obstacle() or 'too few of them to record'}."

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
        if self._rate is not None:
            self._rate.fill_(self.learning_rate)
        seeds = self._draw_seeds()
        for batch in self.batches.read(self.epoch, self.step):
            self._seed(seeds[self.step])
            with self._own_stream():
                parts = [part.to(self.fabric.device, non_blocking=True) for part in batch]
                self._train_on(parts)
            self.step += 1
            yield
            pause()

    def _draw_seeds(self) -> list[int]:
        """Return a seed for each step of the epoch in work; each process has its own, and the first
        what a single one would have.
        """
        place = [self.model.config.seed, self.epoch]
        if rank():
            place.append(rank())
        seeds: list[int] = np.random.SeedSequence(place).generate_state(len(self.batches)).tolist()
        return seeds

    def _train_on(self, batch: list[Tensor]) -> None:
        """Take a step, from a recording where there is one."""
        images, labels, *further = batch
        if len(labels) < 2 and world_size() == 1:
            warnings.warn("a batch of one image is skipped.", stacklevel=2)
            return
        inputs = batch
        work: Work = self._take_step
        if images.dim() == 4 and self.model.config.augment == "flip-shift":
            inputs = [to_device(draw_shifts(images), images.device), *batch]
            work = self._shift_and_take_step
        elif images.dim() == 4 and self.model.config.augment == "crops":
            inputs = [crop_and_colour(images), labels, *further]
        key = self._recording_key()
        if key is None or self._recorder.obstacle is not None:
            work(*inputs)
            return
        replayed = partial(self._note_replay, len(labels))
        with without_looking():
            self._recorder.run(work, inputs, key, replayed, self._remember)

    def _shift_and_take_step(self, shifts: Tensor, *batch: Tensor) -> list[Tensor]:
        images, *rest = batch
        return self._take_step(mirror_and_shift(images, shifts), *rest)

    def _take_step(self, *batch: Tensor) -> list[Tensor]:
        """Compute the loss of an augmented batch and update the network; return the loss."""
        loss = self.model.loss_of(batch, self.network, is_augmented=True)
        assert loss is not None
        self.optimizer.zero_grad()
        self.fabric.backward(loss)
        self._update()
        return [loss.detach()]

    def _update(self) -> None:
        """Take a step of the optimiser; on a GPU its learning rate lies there, where a recorded
        step reads the one of its epoch.
        """
        if self._rate is None or not self._is_fused:
            self.optimizer.step()
            return
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate
        try:
            with capturable(self.optimizer):
                self.optimizer.step()
        finally:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate

    @property
    def _is_fused(self) -> bool:
        return all(group["fused"] for group in self.optimizer.param_groups)

    def _obstacle(self) -> str | None:
        """Return why steps are not recorded; None if they are, or will be."""
        if self.fabric.device.type != "cuda":
            return "there is no GPU"
        if self.model.config.capture == "never":
            return "capture is 'never'"
        if world_size() > 1 or not self._is_fused:
            return "several processes train together"
        if self._recording_key() is None:
            return f"the objective {self.model.config.objective!r} needs Python in every step"
        return self._recorder.obstacle

    def _recording_key(self) -> Hashable | None:
        """Return what a recording of the next step fixes; None if it runs launch by launch."""
        may_record = self._rate is not None and self.model.config.capture == "auto"
        if not may_record or world_size() > 1 or not self._is_fused:
            return None
        return self.model.objective.recording_key()

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """Take a step on a stream of its own, where it can be recorded, behind all work before it
        and ahead of all after it.
        """
        if self._stream is None or own_stream() is not None:
            yield
            return
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    def _remember(self) -> Callable[[], None]:
        """Return what sets back all that Python counts in a step."""
        samples = dict(self.model.means.samples)
        counts = [(part, _counts_of(part)) for part in self.model.objective.modules()]

        def undo() -> None:
            self.model.means.samples = samples
            for part, numbers in counts:
                vars(part).update(numbers)

        return undo

    def _note_replay(self, samples: int) -> None:
        """Count what Python counts in a step."""
        self.model.objective.note_replay()
        self.model.means.count(self.model.reported, samples)

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
        self.epoch = self.epoch + 1
        self.step = 0
        return means


def _counts_of(part: nn.Module) -> dict[str, int]:
    return {name: value for name, value in vars(part).items() if type(value) is int}


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
    parts = [part.to(fabric.device) for part in (images, labels, contexts)]
    if "indices" in model.objective.needs:
        parts.append(torch.arange(len(labels), device=fabric.device))
    loop = Loop(model, TensorBatches(parts, model.config.batch_size, sampler), fabric)
    _, on_device, known = parts[:3]
    model.prepare(on_device, known)
    means: dict[str, float] = {}
    while loop.epoch < model.config.epochs:
        for _ in loop.train_epoch():
            pass
        means = loop.end_epoch()
        if after_epoch is not None:
            after_epoch(loop.epoch, means)
    return means
