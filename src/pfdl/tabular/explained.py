"""What a fitted screen has to say, in words, as a table and as a plot: the same for the screen and what wraps it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import _check_feature_names_in

from pfdl.tabular.plot import ScreeningPlot
from pfdl.tabular.words import explanation_frame, verdict_sentence

if TYPE_CHECKING:
    import pandas as pd

    from pfdl.tabular.selector import SelectionScreen


class ExplainedScreening(ABC):
    """Explain why columns were kept or dropped.

    Where ``fit`` saw no names, as behind a ``ColumnTransformer`` that returns arrays, every method takes them as
    ``input_features``: give the transformer's ``get_feature_names_out()``. Or let the transformer return frames, by
    ``pipeline.set_output(transform="pandas")`` before ``fit``; then nothing is to be given.
    """

    @abstractmethod
    def _fitted_screen(self) -> SelectionScreen:
        """Return the fitted screen.

        Raises:
            NotFittedError: If ``fit`` was not called.
        """

    def explain(self, input_features: Any = None) -> pd.DataFrame:
        """Say why each column was kept or dropped.

        Args:
            input_features: Names of the columns, where ``fit`` saw none: behind a ``ColumnTransformer`` give its
                ``get_feature_names_out()``.

        Returns:
            One row per column. ``decision`` and ``why``, a sentence; then the figures: ``m``, the share of the column
            that the other columns explain; ``k``, the same once y is known; ``ratio`` = k/m; ``share``, how much of all
            that can be explained of the column y explains alone; ``relevance``, p-value of "it adds nothing to the
            other columns"; ``survival``, in which share of the halves of the rows it was found to follow y as well;
            with environments, ``changes``, p-value of "its slope is the same in all environments".
        """
        screen = self._fitted_screen()
        return explanation_frame(screen.screening_, _names(screen, input_features))

    def verdict(self, input_features: Any = None) -> str:
        """Return the outcome in a sentence that names the columns.

        Args:
            input_features: Names of the columns, where ``fit`` saw none; see `explain`.
        """
        screen = self._fitted_screen()
        return verdict_sentence(screen.screening_, _names(screen, input_features))

    @property
    def verdict_(self) -> str:
        """The outcome in a sentence."""
        return self.verdict()

    def plot(self, ax: Any = None, input_features: Any = None) -> Any:
        """Draw m, k and the decision of each column.

        Args:
            ax: Matplotlib axes to draw on; new ones by default.
            input_features: Names of the columns, where ``fit`` saw none; see `explain`.

        Returns:
            The axes.
        """
        return self.screening_plot(input_features).draw(ax)

    def screening_plot(self, input_features: Any = None) -> ScreeningPlot:
        """Return what `plot` draws."""
        screen = self._fitted_screen()
        return ScreeningPlot(
            self.explain(input_features),
            self.verdict(input_features),
            screen.ratio_threshold,
            screen.share_threshold,
            round(screen.screening_.rows),
        )


def _names(screen: SelectionScreen, input_features: Any) -> list[str]:
    return [str(name) for name in _check_feature_names_in(screen, input_features)]
