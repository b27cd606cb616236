"""scikit-learn estimators for tables whose rows were selected with a bias."""

from typing import TYPE_CHECKING

from pfdl._internal.lazy import lazy_names

if TYPE_CHECKING:
    from pfdl.tabular.dwr import DWRRegressor as DWRRegressor
    from pfdl.tabular.pfdl import PFDLRegressor as PFDLRegressor
    from pfdl.tabular.reading import read_table as read_table
    from pfdl.tabular.screened import ScreenedRegressor as ScreenedRegressor
    from pfdl.tabular.selector import SelectionScreen as SelectionScreen
    from pfdl.tabular.selector import SelectionWarning as SelectionWarning
    from pfdl.tabular.svi import SVIRegressor as SVIRegressor

#: Loaded when first asked for: only DWR and PFDL need PyTorch, which takes seconds to import.
_HOME = {
    "SVIRegressor": "pfdl.tabular.svi",
    "DWRRegressor": "pfdl.tabular.dwr",
    "PFDLRegressor": "pfdl.tabular.pfdl",
    "ScreenedRegressor": "pfdl.tabular.screened",
    "SelectionScreen": "pfdl.tabular.selector",
    "SelectionWarning": "pfdl.tabular.selector",
    "read_table": "pfdl.tabular.reading",
}
__all__ = list(_HOME)
__getattr__, __dir__ = lazy_names(__name__, _HOME)
