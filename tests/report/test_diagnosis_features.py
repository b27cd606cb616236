import numpy as np

import pfdl
from pfdl.report.diagnosis_features import MOST_CELLS, draw_correlation
from pfdl.vision.diagnosis import ImageDiagnosis


def drawn_from(found):
    return ImageDiagnosis(None, None, found, (), (), "unknown", {}, (), None)


def test_a_wide_network_is_drawn_small_with_its_clusters_framed():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(150, 400))
    features[:, 300:] += 4 * generator.normal(size=(150, 1))  # the largest cluster, which comes first
    features[:, 7] = 0
    found = pfdl.diagnose(features, np.arange(150) % 2)
    before = draw_correlation(drawn_from(found), after=False, title="before")
    assert before.values.shape == (MOST_CELLS, MOST_CELLS)
    assert len(before.names) == MOST_CELLS
    assert before.frames[0][0] == 0
    first, last = before.frames[0]
    assert before.values[first : last + 1, first : last + 1].mean() > 0.8
    assert before.values[last + 1 :, last + 1 :].mean() < 0.2
    assert "the mean of about 2 by as many" in before.summary
    assert "feature 7" not in before.names
    after = draw_correlation(drawn_from(found), after=True, title="after")
    assert after.values.mean() < before.values.mean()
    assert after.drawing["size"] == MOST_CELLS


def test_a_narrow_one_is_drawn_feature_by_feature():
    found = pfdl.diagnose(np.random.default_rng(1).normal(size=(60, 5)), np.arange(60) % 2)
    drawn = draw_correlation(drawn_from(found), after=False, title="before")
    assert sorted(drawn.names) == [f"feature {number}" for number in range(5)]
    np.testing.assert_allclose(np.diag(drawn.values), 1)
