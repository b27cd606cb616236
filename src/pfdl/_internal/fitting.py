"""Estimators whose ``fit`` succeeds or leaves them as they were."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Fit = TypeVar("Fit", bound=Callable[..., Any])


def all_or_nothing(fit: Fit) -> Fit:
    """Let a ``fit`` that raises leave the estimator as it was, fitted to what it was fitted to before.

    Without this a fitted estimator that is shown a table it cannot use has the number of features of the new table and
    the coefficients of the old one.
    """

    @wraps(fit)
    def wrapped(self: Any, /, *arguments: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *arguments, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, wrapped)
