"""Leave-one-out arithmetic: every feature predicted from all the others, without p copies of the
input.
"""

from pfdl.decorrelation.kernels.function import KERNELS, LeaveOneOut, choose_kernels
from pfdl.decorrelation.kernels.leave_one_out import leave_one_out_mlp

__all__ = ["KERNELS", "LeaveOneOut", "choose_kernels", "leave_one_out_mlp"]
