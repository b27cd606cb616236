"""Python files of a user's own, imported for the objectives and backbones that they register."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb

VARIABLE = "PFDL_IMPORT"
"""The environment variable that names the files, as PATH names folders; processes that are started
inherit it.
"""

_imported: set[Path] = set()


def add_own_files(paths: Iterable[Path]) -> None:
    """Import files here, and in all processes that this one starts."""
    known = os.environ.get(VARIABLE, "").split(os.pathsep)
    os.environ[VARIABLE] = os.pathsep.join(
        filter(None, [*known, *(str(path.resolve()) for path in paths)])
    )
    import_own_files()


def import_own_files() -> None:
    """Import the files that ``PFDL_IMPORT`` names, each once.

    Raises:
        ImportError: If there is no such file, or it raises.
    """
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        path = Path(name).resolve()
        if path in _imported:
            continue
        spec = spec_from_file_location(f"pfdl_import_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ImportError(
                f"there is no Python file {path.name} to import; give one whose name ends in .py."
            )
        # Before it runs: what it registers is compared with all names, which are asked for here
        _imported.add(path)
        module = module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # a script that ends itself would end the command
            _imported.discard(path)
            lines = [
                step.lineno
                for step in extract_tb(error.__traceback__)
                if step.filename == str(path)
            ]
            where = f", line {lines[-1]}," if lines else ""
            raise ImportError(
                f"{path.name}{where} cannot be imported: {type(error).__name__}: {error}"
            ) from error
