"""Contexts that some samples have are spread to the others."""

import numpy as np
import pytest

from pfdl.contexts import find_contexts, group_report, spread_contexts
from tests.contexts.objects import in_contexts


def test_contexts_of_a_tenth_are_enough_where_clusters_find_none():
    features, labels, contexts = in_contexts(samples=2000, strength=1.0, dominant=0.9)
    assert find_contexts(features, labels).number == 1
    names = np.array(["forest", "lake", "sand", "snow"])[contexts]
    found = spread_contexts(
        features[200:],
        labels[200:],
        known_features=features[:200],
        known_labels=labels[:200],
        known_contexts=names[:200],
    )
    assert (found.contexts == contexts[200:]).mean() > 0.95
    assert group_report(labels[200:], found.contexts, contexts[200:]).minority_recall > 0.9
    assert "200 samples were spread to 1800" in found.sentence


@pytest.mark.parametrize(
    ("features", "contexts", "message"),
    [(np.eye(4), [0, 1, 1], "give"), (np.eye(4)[:, :3], [0, 1, 0, 1], "give"), (np.eye(4), [2] * 4, "fewer than two")],
)
def test_what_cannot_be_spread_is_refused(features, contexts, message):
    with pytest.raises(ValueError, match=message):
        spread_contexts(
            np.eye(4), [0, 1, 0, 1], known_features=features, known_labels=[0, 1, 0, 1], known_contexts=contexts
        )
