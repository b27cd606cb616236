"""What to do about a verdict, as lines of code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pfdl.tabular.screening import FOLLOWS_LABEL, Outcome

if TYPE_CHECKING:
    import pandas as pd

    from pfdl.tabular.selector import SelectionScreen


def advice(screen: SelectionScreen, y: pd.Series) -> str:
    """Return the lines of code that act on the verdict of a fitted screen.

    Args:
        screen: The screen, fitted to a frame.
        y: The label it was fitted to, whose name and type decide what to fit.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    found = screen.screening_
    number = is_numeric_dtype(y) and not is_bool_dtype(y)
    model = "ScreenedRegressor" if number else "ScreenedClassifier"
    drop = repr(str(y.name))
    if found.outcome is Outcome.SELECTION:
        followers = [
            name for name, made in zip(screen.feature_names_in_, found.decision, strict=True) if made == FOLLOWS_LABEL
        ]
        return (
            f"model = pfdl.tabular.{model}().fit(table.drop(columns={drop}), table[{drop}])\n"
            "# to keep a column that you trust: "
            f"pfdl.tabular.{model}(screen=pfdl.tabular.SelectionScreen(keep={[str(f) for f in followers[:1]]}))"
        )
    model = "sklearn.linear_model.LinearRegression" if number else "sklearn.linear_model.LogisticRegression"
    return f"model = {model}().fit(table.drop(columns={drop}), table[{drop}])  # nothing to screen out"
