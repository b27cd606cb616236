"""Published figures of the MMADS table, as data: by method and metric, in the order of
``CELLS``.
"""

from __future__ import annotations

from collections.abc import Mapping

Cell = tuple[int, int, float]
"""(n, p, r): rows and columns of the training table, and its bias rate."""

#: (n, p, r) of the seven columns of the paper's Table I.
CELLS: tuple[Cell, ...] = (
    (1000, 10, 1.7),
    (2000, 10, 1.7),
    (4000, 10, 1.7),
    (2000, 20, 1.7),
    (2000, 40, 1.7),
    (2000, 20, 1.5),
    (2000, 20, 2.0),
)
METRICS = ("beta_s_error", "beta_v_error", "ae", "se")

Figures = Mapping[str, Mapping[str, tuple[float, ...]]]

#: The paper's Table I, setting S ⊥ V. The rows of β_S are in its LaTeX source, commented out.
PAPER: Figures = {
    "OLS": {
        "beta_s_error": (0.260, 0.262, 0.264, 0.339, 0.892, 0.339, 0.473),
        "beta_v_error": (0.099, 0.097, 0.097, 0.070, 0.044, 0.059, 0.079),
        "ae": (0.604, 0.583, 0.587, 0.612, 0.538, 0.519, 0.660),
        "se": (0.254, 0.236, 0.236, 0.319, 0.312, 0.220, 0.364),
    },
    "Lasso": {
        "beta_s_error": (0.313, 0.315, 0.317, 0.451, 0.907, 0.451, 0.610),
        "beta_v_error": (0.102, 0.101, 0.101, 0.080, 0.047, 0.067, 0.091),
        "ae": (0.639, 0.617, 0.621, 0.720, 0.618, 0.590, 0.781),
        "se": (0.285, 0.267, 0.267, 0.408, 0.370, 0.297, 0.447),
    },
    "Ridge": {
        "beta_s_error": (0.260, 0.262, 0.264, 0.339, 0.907, 0.339, 0.473),
        "beta_v_error": (0.099, 0.097, 0.097, 0.070, 0.044, 0.059, 0.079),
        "ae": (0.603, 0.583, 0.587, 0.612, 0.538, 0.519, 0.660),
        "se": (0.254, 0.236, 0.236, 0.319, 0.312, 0.220, 0.364),
    },
    "DWR": {
        "beta_s_error": (0.189, 0.192, 0.203, 0.282, 0.912, 0.282, 0.415),
        "beta_v_error": (0.066, 0.060, 0.057, 0.066, 0.038, 0.060, 0.077),
        "ae": (0.519, 0.509, 0.505, 0.550, 0.519, 0.548, 0.613),
        "se": (0.103, 0.110, 0.114, 0.232, 0.297, 0.197, 0.303),
    },
    "PFDL": {
        "beta_s_error": (0.369, 0.371, 0.453, 0.455, 0.578, 0.387, 0.512),
        "beta_v_error": (0.027, 0.025, 0.016, 0.027, 0.013, 0.010, 0.023),
        "ae": (0.629, 0.613, 0.569, 0.546, 0.471, 0.497, 0.618),
        "se": (0.086, 0.071, 0.089, 0.071, 0.082, 0.031, 0.119),
    },
}


def name_cell(cell: Cell) -> str:
    """Return what a cell is called in tables."""
    return f"n={cell[0]} p={cell[1]} r={cell[2]:g}"
