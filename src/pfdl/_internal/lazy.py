"""Names that are imported when they are first asked for, because what stands behind them may take
seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, Collection[str]], packages: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for the ``__init__`` of a package.

    Args:
        package: Its ``__name__``.
        modules: For each module of the package the public names that it has. No module may have the
            name of one of these: importing it would put it in the other's place.
        packages: Sub-packages that can be reached as attributes, too.
    """
    homes: dict[str, str] = {}
    for module, names in modules.items():
        homes.update(dict.fromkeys(names, f"{package}.{module}"))

    def get(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in packages:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *packages})

    return get, list_names, sorted(homes)
