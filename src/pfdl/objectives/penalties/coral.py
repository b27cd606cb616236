"""Correlation alignment."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import combinations

import torch
from torch import Tensor

from pfdl._internal.validation import check_matrix
from pfdl.objectives.penalties.environments import EnvironmentPenalty, check_environments

MOST_COMPARED = 12
"""Environments whose covariances, p² numbers each, are all computed, whether a batch has them or
not.
"""


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

    def recording_key(self) -> Hashable | None:
        """Return what a recording would fix; with many environments nothing is recorded."""
        if self._number is None or self._number > MOST_COMPARED:
            return None
        return super().recording_key()

    def compare(self, features: Tensor, environments: Tensor) -> Tensor:
        """Return the mean squared distance of the covariances, without the weight."""
        check_matrix("features", features)
        check_environments(environments, len(features))
        members = self.membership(environments)
        if members is not None and members.shape[1] <= MOST_COMPARED:
            distance = _distance_of_all(features, members.to(features.dtype))
            return distance / (4 * features.shape[1] ** 2)
        groups = [features[environments == number] for number in torch.unique(environments)]
        covariances = [torch.cov(group.T) for group in groups if len(group) > 1]
        distances = [(a - b).square().sum() for a, b in combinations(covariances, 2)]
        if not distances:
            return features.new_zeros(())
        return torch.stack(distances).mean() / (4 * features.shape[1] ** 2)


def _distance_of_all(features: Tensor, members: Tensor) -> Tensor:
    """Return the mean squared distance of covariances between the environments with two samples or
    more; 0 without two of these. Shapes do not depend on which these are.
    """
    samples = members.sum(0)
    covariances = []
    for mine, count in zip(members.T, samples, strict=True):
        mean = mine @ features / count.clamp(min=1)
        centred = (features - mean) * mine[:, None]
        covariances.append(centred.T @ centred / (count - 1).clamp(min=1))
    has_two = (samples > 1).to(features.dtype)
    total = pairs = features.new_zeros(())
    for a, b in combinations(range(len(covariances)), 2):
        counts = has_two[a] * has_two[b]
        total = total + counts * (covariances[a] - covariances[b]).square().sum()
        pairs = pairs + counts
    return total / pairs.clamp(min=1)
