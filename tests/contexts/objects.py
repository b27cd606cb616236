"""Made-up features of objects in contexts."""

import numpy as np


def in_contexts(seed=0, samples=1200, classes=4, strength=3.0, dominant=0.85, of_class=0.5):
    """Each class is mostly in a context of its own; of 40 features half move with the context, half
    with the class.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=samples)
    contexts = np.where(rng.random(samples) < dominant, labels, rng.integers(classes, size=samples))
    features = rng.normal(size=(samples, 40))
    features[:, :20] += strength * rng.normal(size=(classes, 20))[contexts]
    features[:, 20:] += of_class * rng.normal(size=(classes, 20))[labels]
    return features, labels, contexts
