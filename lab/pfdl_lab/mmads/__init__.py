"""The paper's Table I: regression under biased selection."""
