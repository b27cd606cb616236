"""What to do about a verdict, as lines of code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pfdl.tabular.screening import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from pfdl.tabular.selector import SelectionScreen


def advice(screen: SelectionScreen, path: Path, target: str) -> str:
    """Return lines of code that act on the verdict of a screen, and run as they are.

    Args:
        screen: The screen, fitted to the table of a file as `read_table` reads it.
        path: The file.
        target: The column to be predicted.
    """
    found, names = screen.screening_, screen.feature_names_in_
    read = f"table = pfdl.tabular.read_table({str(path)!r}, {target!r})"
    if found.outcome is Outcome.SELECTION:
        model = f"pfdl.tabular.Screened{'Regressor' if screen.target_ == 'number' else 'Classifier'}"
        trusted = [str(name) for name in names[found.followers][:1]]
        return (
            f"import pfdl.tabular; {read}; model = {model}().fit(table.X, table.y)\n"
            f"# to keep a column that you trust: {model}(screen=pfdl.tabular.SelectionScreen(keep={trusted}))"
        )
    model = "LinearRegression()" if screen.target_ == "number" else "LogisticRegression(max_iter=1000)"
    return (
        f"import pfdl.tabular, sklearn.linear_model; {read}; "
        f"model = sklearn.linear_model.{model}.fit(table.X, table.y)  # nothing is left out"
    )
