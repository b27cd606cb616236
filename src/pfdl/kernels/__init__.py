"""Leave-one-out arithmetic: every feature predicted from all the others, without p copies of the input."""

from pfdl.kernels.leave_one_out import leave_one_out_mlp

__all__ = ["leave_one_out_mlp"]
