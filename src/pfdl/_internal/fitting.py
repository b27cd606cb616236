"""Estimators whose ``fit`` succeeds or leaves them as they were."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Estimator = TypeVar("Estimator")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def all_or_nothing(
    fit: Callable[Concatenate[Estimator, Arguments], Result],
) -> Callable[Concatenate[Estimator, Arguments], Result]:
    """Let a ``fit`` that raises leave the estimator as it was, fitted to what it was fitted to before.

    Without this a fitted estimator that is shown a table it cannot use has the number of features of the new table and
    the coefficients of the old one.
    """

    @wraps(fit)
    def wrapped(self: Estimator, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        before = dict(vars(self))
        try:
            return fit(self, *arguments, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return wrapped
