"""Correlation alignment."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from pfdl._internal.validation import check_matrix
from pfdl.objectives.penalties.environments import EnvironmentPenalty, check_environments


class CORAL(EnvironmentPenalty):
    r"""Deep CORAL (Sun and Saenko, 2016): the features' covariances should agree between
    environments.

    .. math:: \operatorname*{mean}_{e < e'} \frac{1}{4p^2} \| C_e - C_{e'} \|_F^2

    with the covariance matrix :math:`C_e` of the features in environment e. An environment with a
    single sample in the batch has none and is left out; with fewer than two environments left the
    penalty is 0. ``weight`` and ``anneal`` as in :class:`EnvironmentPenalty`.

    DomainBed's CORAL divides by p² alone, and adds the mean squared distance of the features'
    means. So four times its ``mmd_gamma`` is here the same weight of the covariances; the other
    term has no counterpart.
    """

    reference = "Sun and Saenko, 2016"
    needs = ("features", "environments")

    def compare(self, features: Tensor, environments: Tensor) -> Tensor:
        """Return the mean squared distance of the covariances, without the weight."""
        check_matrix("features", features)
        check_environments(environments, len(features))
        groups = [features[environments == number] for number in torch.unique(environments)]
        covariances = [torch.cov(group.T) for group in groups if len(group) > 1]
        distances = [(a - b).square().sum() for a, b in combinations(covariances, 2)]
        if not distances:
            return features.new_zeros(())
        return torch.stack(distances).mean() / (4 * features.shape[1] ** 2)
