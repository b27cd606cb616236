"""Tests of one network along its training, at its end, and at the epoch that held-out samples
choose.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pfdl.contexts import group_accuracy, worst_group_accuracy
from pfdl.decorrelation import PartialDecorrelation
from pfdl.vision.pixels import normalise
from pfdl_lab.gradients import probe
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.images.data import WHOLE, Split
from pfdl_lab.training import Progress, Samples, mixed_precision, predict_classes

WORST_GROUP = "worst group"
WORST_CLASS = "worst class"
VALIDATION = "validation"
LAST = "last"
CHOSEN = "chosen"
"""The epochs that count: the last, and the one with the best score on samples of the training
mixture.
"""

Refit = Callable[[nn.Module], nn.Module]
EARLY_EPOCHS = (1, 2, 5)
"""Where networks are tested along the training, they are tested after these epochs, too."""


class Tester:
    """Tests a network after some epochs, and remembers the weights that were best on the validation
    samples.

    Args:
        split: The samples.
        judged: What may be known of the contexts of validation samples, shape (m,).
        config: How the experiment is made: what chooses an epoch (between equal ones of
            worst-group, the average over groups), how often to test, and the precision.
        switch_off_after: Epochs after which a control's penalty is switched off.
        batch_size: Samples of the batch on which penalties are probed.
        device: Where to compute.

    Attributes:
        lines: What was found: ``epoch``, ``test`` and ``value``.
    """

    def __init__(
        self,
        split: Split,
        judged: Tensor,
        config: ImagesConfig,
        *,
        switch_off_after: int,
        batch_size: int,
        device: str,
    ) -> None:
        self.tests = split.tests
        self.has_contexts = split.has_contexts
        self.config = config
        self.test = Samples(split.test.inputs.to(device), split.test.labels, split.test.contexts)
        self.validation = Samples(
            split.validation.inputs.to(device), split.validation.labels, judged
        )
        self.probed = split.train.inputs[:batch_size]
        self.switch_off_after = switch_off_after
        self.device = device
        self.best_scores: tuple[float, ...] = ()
        self.best_epoch = 0
        self.best_weights: dict[str, Tensor] = {}
        self.lines: list[dict[str, Any]] = []

    def note(self, epoch: int | str, values: Mapping[str, float]) -> None:
        """Write down values of an epoch."""
        self.lines += [
            {"epoch": str(epoch), "test": name, "value": value} for name, value in values.items()
        ]

    def __call__(self, progress: Progress) -> None:
        """Validate after every epoch; test, and probe the penalty, after some."""
        score = self._validate(progress)
        every = self.config.test_every
        if every and (progress.epoch % every == 0 or progress.epoch in EARLY_EPOCHS):
            values = {
                **score,
                **progress.metrics,
                **self.accuracies(progress.model),
                **self._probe(progress),
            }
            self.note(progress.epoch, values)
        if progress.epoch == self.switch_off_after:
            for part in progress.objective.modules():
                if isinstance(part, PartialDecorrelation):
                    part.weight = 0.0

    def finish(self, model: nn.Module, refit: Refit | None) -> None:
        """Test the last weights and those that were best on the validation samples.

        Args:
            model: The trained network.
            refit: What is done to a network before it is tested, if anything.
        """
        self.note(LAST, self.accuracies(refit(model) if refit else model))
        if self.best_weights:
            model.load_state_dict(self.best_weights)
            chosen = {VALIDATION: 100 * self.best_scores[0], "epoch": self.best_epoch}
            self.note(CHOSEN, {**self.accuracies(refit(model) if refit else model), **chosen})

    def accuracies(self, model: nn.Module) -> dict[str, float]:
        """Return accuracy in percent by test; of the whole test side also that of its worst group
        or class.
        """
        predicted = predict_classes(
            model, self.test.inputs, device=self.device, precision=self.config.precision
        )
        right = (predicted == self.test.labels).double()
        found = {name: float(right[rows].mean()) for name, rows in self.tests.items()}
        if WHOLE in self.tests:
            worst = worst_group_accuracy(predicted, self.test.labels, self.test.contexts)
            found[WORST_GROUP if self.has_contexts else WORST_CLASS] = worst
        return {name: 100 * value for name, value in found.items()}

    def _validate(self, progress: Progress) -> dict[str, float]:
        inputs, labels, contexts = self.validation
        if not len(labels):
            return {}
        predicted = predict_classes(
            progress.model, inputs, device=self.device, precision=self.config.precision
        )
        found = group_accuracy(predicted, labels, contexts)
        scores = (found.overall,) if self.config.select == "accuracy" else found.worst_then_average
        if scores > self.best_scores:
            self.best_scores = scores
            self.best_epoch = progress.epoch
            self.best_weights = {
                name: value.clone() for name, value in progress.model.state_dict().items()
            }
        return {VALIDATION: 100 * scores[0]}

    def _probe(self, progress: Progress) -> dict[str, float]:
        """Compare the penalty on one batch with its parts, in training mode, as the penalty sees
        the features.
        """
        penalty = next(
            (
                part
                for part in progress.objective.modules()
                if isinstance(part, PartialDecorrelation)
            ),
            None,
        )
        if penalty is None:
            return {}
        state = copy.deepcopy(dict(progress.model.named_buffers()))
        with torch.no_grad():
            with mixed_precision(self.device, self.config.precision):
                progress.model(normalise(self.probed.to(self.device)))
            for name, value in progress.model.named_buffers():
                value.copy_(state[name])  # the batch statistics are put back
        return probe(penalty, progress.tap.features.float())
