"""Give the laboratory the version of the library; all else is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
built = HERE / "PKG-INFO"  # of a source distribution, which has no library beside it
source = built if built.exists() else HERE.parent / "src" / "pfdl" / "__init__.py"
found = re.search(
    r'^(?:__version__ = "|Version: )([^"\s]+)',
    source.read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)
if found is None:
    raise SystemExit(f"{source} names no version.")
setup(version=found[1])
