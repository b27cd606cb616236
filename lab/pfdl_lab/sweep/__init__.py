"""A sweep over settings of ``pfdl train``, and the choice of one of them on validation images."""
