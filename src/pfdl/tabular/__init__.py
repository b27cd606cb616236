"""scikit-learn estimators for tables whose rows were selected with a bias."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfdl.tabular.dwr import DWRRegressor as DWRRegressor
    from pfdl.tabular.explaining import ScreeningPlot as ScreeningPlot
    from pfdl.tabular.pfdl import PFDLRegressor as PFDLRegressor
    from pfdl.tabular.reading import read_table as read_table
    from pfdl.tabular.screened import ScreenedClassifier as ScreenedClassifier
    from pfdl.tabular.screened import ScreenedRegressor as ScreenedRegressor
    from pfdl.tabular.selector import SelectionScreen as SelectionScreen
    from pfdl.tabular.selector import SelectionWarning as SelectionWarning
    from pfdl.tabular.srdo import SRDORegressor as SRDORegressor
    from pfdl.tabular.svi import SVIRegressor as SVIRegressor

#: Loaded when first asked for: only DWR and PFDL need PyTorch, which takes seconds to import.
_HOME = {
    "DWRRegressor": "dwr",
    "PFDLRegressor": "pfdl",
    "SRDORegressor": "srdo",
    "SVIRegressor": "svi",
    "ScreenedClassifier": "screened",
    "ScreenedRegressor": "screened",
    "ScreeningPlot": "explaining",
    "SelectionScreen": "selector",
    "SelectionWarning": "selector",
    "read_table": "reading",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pfdl.tabular' has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"pfdl.tabular.{_HOME[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
