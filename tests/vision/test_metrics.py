"""The running means of an epoch against a plain weighted mean, and the figures of validation
images.
"""

import pytest
import torch

from pfdl.vision.metrics import RunningMeans, validation_metrics

BATCHES = [({"loss": 0.1, "R2": 0.5}, 3), ({"loss": 2.5}, 64), ({"R2": -1.25, "loss": 0.7}, 17)]


def test_means_are_weighted_by_samples_whatever_a_batch_reports_and_survive_a_stop():
    means = RunningMeans()
    means.add({}, 8)
    for values, samples in BATCHES:
        state = means.state_dict()
        means.add(
            {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()},
            samples,
        )
        resumed = RunningMeans()
        resumed.load_state_dict(state)
        resumed.add({name: torch.tensor(value) for name, value in values.items()}, samples)
        assert resumed.state_dict() == means.state_dict()  # neither has touched the saved state
    for name, mean in means.compute().items():
        parts = [(values[name], samples) for values, samples in BATCHES if name in values]
        assert mean == pytest.approx(sum(a * b for a, b in parts) / sum(b for _, b in parts))


def test_validation_tells_the_worst_class_and_group():
    predictions = torch.tensor([1, 1, 1, 0, 0, 0, 1, 0])
    labels = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0])
    contexts = torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
    judged = torch.stack([predictions, labels, contexts, torch.arange(8)]).float()
    logged = validation_metrics(judged, 8)
    assert logged["val_accuracy"] == pytest.approx(6 / 8)
    assert logged["val_worst_class"] == pytest.approx(3 / 4)
    assert logged["val_worst_group"] == pytest.approx(1 / 2)
    assert logged["val_loss"] == pytest.approx(3.5)
    judged[2] = -1.0
    assert "val_worst_group" not in validation_metrics(judged, 8)
