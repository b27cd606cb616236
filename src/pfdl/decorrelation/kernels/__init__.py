"""Leave-one-out arithmetic: every feature predicted from all the others, without p copies of the input."""

from pfdl.decorrelation.kernels.adam import AdamStep
from pfdl.decorrelation.kernels.dispatch import KERNELS, choose_backend
from pfdl.decorrelation.kernels.function import apply_one_hidden, lay_out
from pfdl.decorrelation.kernels.leave_one_out import leave_one_out_mlp
from pfdl.decorrelation.kernels.losses import mark_beyond
from pfdl.decorrelation.kernels.one_hidden import Backend, NoRows, OneHidden

__all__ = [
    "KERNELS",
    "AdamStep",
    "Backend",
    "NoRows",
    "OneHidden",
    "apply_one_hidden",
    "choose_backend",
    "lay_out",
    "leave_one_out_mlp",
    "mark_beyond",
]
