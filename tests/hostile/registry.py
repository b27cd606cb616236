"""What an attack on a loader is, and the list of them: everything that reads what others wrote.

A target is a function of a folder and of drawn values. It returns if the loader did, or if the loader said in a
sentence what is wrong (``ValueError`` or ``OSError``); any other exception, a signal or a hang is a finding. The
examples that are written out are those with which something else came out once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Target(NamedTuple):
    """Something to attack.

    Attributes:
        check: Called with a folder of its own and what was drawn.
        strategies: One for each further argument, made when first needed.
        examples: Arguments that are tried first.
        share: How many of the cases asked for are run; slow targets get fewer.
    """

    check: Callable[..., None]
    strategies: Callable[[], Sequence[st.SearchStrategy[Any]]]
    examples: Callable[[], Sequence[tuple[Any, ...]]]
    share: float


TARGETS: dict[str, Target] = {}


def target(
    strategies: Callable[[], Sequence[st.SearchStrategy[Any]]],
    examples: Callable[[], Sequence[tuple[Any, ...]]] = list,
    share: float = 1.0,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a function in the list of targets."""

    def register(check: Callable[..., None]) -> Callable[..., None]:
        TARGETS[check.__name__] = Target(check, strategies, examples, share)
        return check

    return register


def answered(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a loader returns, or None if it refused with a sentence."""
    try:
        return function(*arguments)
    except (ValueError, OSError) as error:
        return check_sentence(error)


def check_sentence(error: Exception) -> None:
    assert str(error).strip()


def clean(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
