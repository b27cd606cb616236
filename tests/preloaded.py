"""All that is slow to import, once, for the processes that are forked from the one that imports it.

Without looking for garbage meanwhile, nor later among what was imported: in each fork that would
touch, and so copy, hundreds of megabytes.
"""

import gc

gc.disable()

import pytest  # noqa: E402, F401

import tests.hostile.killing_driver  # noqa: E402
import tests.vision.distributed_worker  # noqa: E402, F401

gc.freeze()
gc.enable()
