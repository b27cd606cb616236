"""A sweep in a tenth of a second: the scores of its trainings follow from their settings."""

import pytest
from optuna.distributions import FloatDistribution

from pfdl.vision import SweepConfig, sweeping
from tests.vision.tiny_images import TinySource

SPACE = {"backbone": ["mlp"], "image_size": [8], "epochs": [1], "learning_rate": [0.01, 0.05]}
GRID = SweepConfig(SPACE, seeds=2)
RANGE = SweepConfig({**SPACE, "learning_rate": FloatDistribution(0.001, 0.1)}, seeds=2, trials=3)


def run(config, output):
    """Return the table of results as text, and the settings of the best candidate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "_validate", lambda config, *_: score(config))
        patch.setattr(sweeping, "_test_best", lambda study, *_: study.best_params)
        results, best = sweeping.sweep(config, TinySource(), output)
    return results.to_csv(), best


def score(config):
    return 50 + 100 * config.learning_rate + config.seed
