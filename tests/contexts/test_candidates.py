"""Clusters are sought in numbers on which halves of the features agree."""

import numpy as np
import pytest

from pfdl.contexts import candidates
from pfdl.contexts.clusters import WithinClusters
from tests.contexts.objects import in_contexts


@pytest.mark.parametrize(
    ("agreement", "expected"),
    [
        ({2: 0.9, 3: 0.6, 4: 0.7, 5: 0.6, 6: 0.5, 7: 0.6, 8: 0.4}, [2, 7, 4]),  # peaks above the best, largest first
        ({2: 0.9, 4: 0.4}, [2]),  # a peak too low
        ({2: 0.6, 3: 0.96, 7: 0.9}, [3]),  # clearly apart: nothing finer is wanted
        ({2: 0.3, 3: 0.4}, [3]),  # none is stable enough: the best is returned, to be rejected
        ({11: 0.6, 12: 0.7}, [12]),
        ({3: 0.8, 11: 0.6, 12: 0.7}, [3]),  # of the last number it is unknown whether it is a peak
    ],
)
def test_the_best_number_and_larger_peaks_of_agreement_are_returned(monkeypatch, agreement, expected):
    features, labels, _ = in_contexts(samples=400)
    monkeypatch.setattr(candidates, "adjusted_rand_score", lambda one, _: agreement.get(len(np.unique(one)), 0.0))
    found = list(candidates.find_clusters(WithinClusters, features, labels, number=None, least=0.5, seed=0))
    assert [len(np.unique(one.assign(features, labels))) for one in found] == expected
    assert [one.stability for one in found] == pytest.approx([agreement[number] for number in expected])
