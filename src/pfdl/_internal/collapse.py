"""When learnt weights of samples or rows are of no use."""

_LEAST = 0.1


def describe_collapse(mean: float, size: float, samples: int, noun: str = "samples") -> str | None:
    """Say what became of learnt weights of no use, by their mean, wanted at 1, and effective sample size; or None."""
    if mean < _LEAST:
        return f"fell to zero (mean {mean:.1g}, wanted: 1), where the loss does not depend on their ratios"
    if size < _LEAST * samples:
        return f"are worth {size:.0f} of {samples} {noun} (effective sample size below a tenth), very few to learn from"
    return None
