"""scikit-learn estimators for tables that leak, or whose rows were selected."""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

if TYPE_CHECKING:
    from pfdl.tabular.dwr import DWRRegressor as DWRRegressor
    from pfdl.tabular.pfdl import PFDLRegressor as PFDLRegressor
    from pfdl.tabular.reading import read_table as read_table
    from pfdl.tabular.screened import ScreenedRegressor as ScreenedRegressor
    from pfdl.tabular.selector import (
        LeakScreen as LeakScreen,
        LeakWarning as LeakWarning,
        SelectionScreen as SelectionScreen,
        SelectionWarning as SelectionWarning,
    )

#: Loaded when first asked for: only DWR and PFDL need PyTorch, which takes seconds to import.
_MODULES = {
    "dwr": ("DWRRegressor",),
    "pfdl": ("PFDLRegressor",),
    "reading": ("read_table",),
    "screened": ("ScreenedRegressor",),
    "selector": ("LeakScreen", "LeakWarning", "SelectionScreen", "SelectionWarning"),
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
