"""Everything that reads what others wrote, each with the strategy that feeds it.

A target is a function of a folder and of drawn values. It returns if the loader did, or if the loader said in a
sentence what is wrong (``ValueError`` or ``OSError``); any other exception, a signal or a hang is a finding. The
examples that are written out are those with which something else came out once.
"""

from tests.hostile import file_targets, state_targets
from tests.hostile.registry import TARGETS, Target, clean
from tests.hostile.state_targets import made_state

__all__ = ["TARGETS", "Target", "clean", "file_targets", "made_state", "state_targets"]
