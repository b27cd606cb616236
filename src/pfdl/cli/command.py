"""What the user typed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def this_command() -> str:
    """Return the command line for the record; an absolute path is cut to its name, for it may name a person."""
    return shlex.join(["pfdl", *(Path(part).name if Path(part).is_absolute() else part for part in sys.argv[1:])])
