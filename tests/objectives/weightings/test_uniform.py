import torch

from pfdl.objectives.weightings import Uniform


def test_every_sample_counts_one():
    assert Uniform()(torch.tensor([0.3, 7.0, 0.0])).tolist() == [1.0, 1.0, 1.0]
