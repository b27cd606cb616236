"""Learnt weights of rows, and what they leave of the sample."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from pfdl.tabular.moments import effective_rows

_LEAST_SHARE = 0.1


class EffectiveSampleSizeWarning(UserWarning):
    """Learnt weights rest on so few rows that a fit under them cannot be trusted."""


def effective_sample_size(weight: NDArray[np.float64]) -> float:
    """Return Kish's effective sample size, (Σw)² / Σw²: as many rows of equal weight would be worth as much."""
    return effective_rows(weight)


def warn_if_few_rows_count(weight: NDArray[np.float64], method: str) -> float:
    """Return the effective sample size, and warn if it is below a tenth of the rows."""
    size = effective_sample_size(weight)
    if size < _LEAST_SHARE * len(weight):
        warnings.warn(
            f"the weights of {method} are worth {size:.0f} of {len(weight)} rows (effective sample size below a tenth),"
            " so its coefficients are unreliable. Standardise the columns, use fewer of them, or compare with least "
            "squares on held-out environments before you trust the fit.",
            EffectiveSampleSizeWarning,
            stacklevel=4,  # the caller of fit, which is wrapped
        )
    return size
