"""Describe learnt weights that are of no use."""

_LEAST = 0.1


def describe_collapse(mean: float, size: float, samples: int, noun: str = "samples") -> str | None:
    """Return what is wrong with learnt weights, for a sentence; None if nothing is.

    The mean is that before it is made 1, the size the effective sample size.
    """
    if mean < _LEAST:
        return (
            f"fell to zero (mean {mean:.1g} instead of 1); there the loss no longer says which"
            f" {noun} count more"
        )
    if size < _LEAST * samples:
        return (
            f"are worth {size:.0f} of {samples} {noun} (effective sample size below a tenth), very"
            " few to learn from"
        )
    return None
