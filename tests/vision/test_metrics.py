"""The running means of an epoch against a plain weighted mean."""

import pytest
import torch

from pfdl.vision.metrics import RunningMeans

BATCHES = [({"loss": 0.1, "R2": 0.5}, 3), ({"loss": 2.5}, 64), ({"R2": -1.25, "loss": 0.7}, 17)]


def test_means_are_weighted_by_samples_whatever_a_batch_reports_and_survive_a_stop():
    means = RunningMeans()
    means.add({}, 8)
    for values, samples in BATCHES:
        state = means.state_dict()
        means.add({name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}, samples)
        resumed = RunningMeans()
        resumed.load_state_dict(state)
        resumed.add({name: torch.tensor(value) for name, value in values.items()}, samples)
        assert resumed.state_dict() == means.state_dict()  # neither has touched the saved state
    for name, mean in means.compute().items():
        parts = [(values[name], samples) for values, samples in BATCHES if name in values]
        assert mean == pytest.approx(sum(a * b for a, b in parts) / sum(b for _, b in parts))
