"""Names that are imported when they are first asked for, because what stands behind them may take seconds."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, packages: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for the ``__init__`` of a package.

    Its public names are those that it imports for type checkers, as ``from MODULE import NAME as NAME`` below ``if
    TYPE_CHECKING``: they are read from its source, so that each is written once. No module of the package may have one
    of these names: importing it would put it in the other's place.

    Args:
        package: Its ``__name__``.
        packages: Sub-packages that can be reached as attributes, too.

    Returns:
        The two functions, and the names.
    """
    module: Any = sys.modules[package]
    source = module.__spec__.loader.get_source(package)
    homes = {name: home for home, name in re.findall(r"^    from (\S+) import (\w+) as \2$", source, re.MULTILINE)}

    def get(name: str) -> Any:
        if name in homes:
            found = getattr(import_module(homes[name]), name)
            setattr(module, name, found)
            return found
        if name in packages:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def list_names() -> list[str]:
        return sorted({*vars(module), *homes, *packages})

    return get, list_names, list(homes)
