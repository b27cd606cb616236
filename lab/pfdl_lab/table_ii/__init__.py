"""The paper's Table II on the paper's backbone and schedule, with controls that say what the penalty does."""
