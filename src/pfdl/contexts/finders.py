"""Finders: what proposes contexts from features or logits and labels, and their names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from pfdl._internal.own_files import import_own_files
from pfdl._internal.text import did_you_mean
from pfdl.contexts._arrays import FloatArray, IndexArray, as_numbers

ENTRY_POINTS = "pfdl.contexts"
"""The group of entry points under which an installed package offers finders."""

AUTO = "auto"
"""All finders that :func:`pfdl.infer_contexts` tries by itself, in turn."""

FEATURES = "features"
LOGITS = "logits"
"""What a finder may read: the name of its first parameter."""

OFFERED = ("seed", "num_contexts", "least_agreement")
"""What a finder is given if it has a parameter of that name; all others are its settings."""


@dataclass(frozen=True)
class Demands:
    """What the checks ask of the contexts of a finder.

    Attributes:
        agreement: How well contexts by random halves of the features must agree; None for contexts
            that do not come from the features.
        gain: What drawing all groups equally often must add to the held-out accuracy, as a share.
        errors_are_one_group: Whether all that a short training gets wrong counts as one group:
            where contexts are its predictions, that a longer training is better in each of these
            groups follows from how they were made, and says nothing of contexts.
        are_mistakes: Whether contexts are what a short training mistakes samples for: then they
            must also be neither hard images nor wrong labels (``pfdl/contexts/misled.py``).
    """

    agreement: float | None = 0.8
    gain: float = 0.02
    errors_are_one_group: bool = False
    are_mistakes: bool = False


DEFAULT_DEMANDS = Demands()


@dataclass(frozen=True, eq=False)
class Proposal:
    """Contexts that a finder proposes.

    Attributes:
        contexts: The context of each sample that the finder was given, shape (n,), from 0.
        sentence: What these contexts are, for a person to read.
        draws: How often each sample is drawn relative to the others, shape (n,); None to draw all
            groups equally often.
        stability: How well contexts by random halves of the features agree, 0 to 1. None to have it
            measured: the finder is run on the halves.
        assign: From features and classes of other samples to their contexts; needed only where
            there are more samples than a finder is given (20,000).
        demands: What the checks ask.
    """

    contexts: IndexArray
    sentence: str = ""
    draws: FloatArray | None = None
    stability: float | None = None
    assign: Callable[[FloatArray, IndexArray], IndexArray] | None = None
    demands: Demands = DEFAULT_DEMANDS

    @property
    def number(self) -> int:
        """Return how many contexts there are."""
        return int(self.contexts.max(initial=0)) + 1


Finder = Callable[..., "Proposal | Iterable[Proposal] | IndexArray"]
"""From features (standardised) or logits and labels, both arrays, to contexts. Of several
proposals the first decides whether there are contexts, and the last that passes is not better than
the first that does: larger numbers come first.
"""


@dataclass(frozen=True)
class FinderInfo:
    """What ``pfdl list contexts`` says of a name.

    Attributes:
        name: What it is called.
        summary: What it does, one sentence.
        reads: ``"features"`` or ``"logits"``, those of a first network.
        settings: Its settings with their defaults, as ``name=default``.
        automatic: Whether it is one of those that ``auto`` tries.
    """

    name: str
    summary: str
    reads: str
    settings: tuple[str, ...]
    automatic: bool


_finders: dict[str, Finder] = {}
_automatic: list[str] = []


def register_contexts(name: str, finder: Finder) -> None:
    """Give a finder of contexts a name, for ``infer_contexts(…, method=NAME)``, ``pfdl train --set
    infer_by=NAME`` and ``pfdl list contexts``.

    An installed package can do the same without being imported first, by an entry point::

        [project.entry-points."pfdl.contexts"]
        mine = "my_package:find"

    A file that is no package is named on the command line: ``pfdl train photos/ --import my.py
    --contexts inferred --set infer_by=mine``.

    Args:
        name: Letters, digits and hyphens; not taken yet.
        finder: A function of ``features`` or ``logits``, shape (n, p), as its first parameter is
            called, and of the classes as numbers, shape (n,). It returns the context of each
            sample, shape (n,), or a :class:`pfdl.contexts.Proposal`. A parameter ``seed`` is
            given the seed; other parameters with defaults are settings. Contexts from features are
            judged like those of every finder; contexts from logits are taken as they are.

    Raises:
        ValueError: If the name cannot be used or is taken.
        TypeError: If the finder cannot be called, or its first parameter is neither.

    Example:
        >>> def by_sign(features, labels):
        ...     '''Split the samples by the sign of the first feature.'''
        ...     return (features[:, 0] > 0).astype(int)
        >>> register_contexts("sign-example", by_sign)
        >>> "sign-example" in [finder.name for finder in list_contexts()]
        True
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(
            f"the name of the finder is {name!r}; give letters, digits and hyphens, such as"
            " 'by-colour'."
        )
    if name == AUTO or name in _known():
        raise ValueError(f"there is a finder {name!r} already; choose another name.")
    if not callable(finder):
        raise TypeError(f"the finder {name!r} is a {type(finder).__name__}; give a function.")
    reads(finder)
    _finders[name] = finder


def list_contexts() -> list[FinderInfo]:
    """Return all finders that can be named, in alphabetical order."""
    return [_describe(name, finder) for name, finder in sorted(_known().items())]


def automatic_finders() -> tuple[str, ...]:
    """Return the names of the finders that are tried by default, in their order."""
    _known()
    return tuple(_automatic)


def get_finder(name: str) -> Finder:
    """Return the finder of a name.

    Raises:
        ValueError: If there is none.
    """
    known = _known()
    if name not in known:
        choice = ", ".join([AUTO, *sorted(known)])
        raise ValueError(
            f"method is {name!r}; choose from {choice}{did_you_mean(name, known) or '.'}"
        )
    return known[name]


def reads(finder: Finder) -> str:
    """Return what a finder reads, ``"features"`` or ``"logits"``, by its first parameter.

    Raises:
        TypeError: If it is called otherwise.
    """
    first = next(iter(inspect.signature(finder).parameters), "")
    if first not in (FEATURES, LOGITS):
        raise TypeError(
            f"the first parameter of a finder says what it reads; it is {first!r} and must be"
            f" {FEATURES!r} or {LOGITS!r}."
        )
    return first


def reads_logits(name: str) -> bool:
    """Return whether the finder of a name reads the logits of a first network."""
    return name != AUTO and reads(get_finder(name)) == LOGITS


def settings_of(finder: Finder) -> dict[str, Any]:
    """Return the settings of a finder with their defaults, in order."""
    _, _, *others = inspect.signature(finder).parameters.values()
    return {one.name: one.default for one in others if one.name not in OFFERED}


def check_settings_of(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a finder that does not exist, or settings that it does not have.

    Raises:
        ValueError: If there is such a one.
    """
    valid = {} if name == AUTO else settings_of(get_finder(name))
    if unknown := set(settings) - set(valid):
        choice = f"it has {', '.join(valid)}" if valid else "it has none"
        hint = did_you_mean(min(unknown), valid) or "."
        raise ValueError(
            f"the finder {name!r} has no setting {', '.join(sorted(unknown))}; {choice}{hint}"
        )


def takes(finder: Finder, parameter: str) -> bool:
    """Return whether a finder has a parameter."""
    return parameter in inspect.signature(finder).parameters


def propose(
    finder: Finder,
    inputs: Any,
    labels: Any,
    offered: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Iterator[Proposal]:
    """Run a finder and yield what it proposes, of the parameters on offer with those that it has.

    Raises:
        ValueError: If it does not give one context per sample.
    """
    wanted = {name: value for name, value in offered.items() if takes(finder, name)}
    returned = finder(inputs, labels, **wanted, **settings)
    if isinstance(returned, Proposal):
        returned = [returned]
    elif hasattr(returned, "__array__") or isinstance(returned, list):
        returned = [Proposal(as_numbers("contexts", returned).astype(np.intp))]
    for proposal in returned:
        if np.shape(proposal.contexts) != np.shape(labels):
            raise ValueError(
                f"a finder gave contexts of shape {np.shape(proposal.contexts)} for"
                f" {len(labels)} samples; it must give one context per sample."
            )
        yield proposal


@cache
def _load_entry_points() -> Mapping[str, Finder]:
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}


@cache
def _add_own() -> None:
    """Register the library's own finders; they import this module."""
    from pfdl.contexts.clustering import find_pooled, find_within
    from pfdl.contexts.early import find_early
    from pfdl.contexts.misled import find_misled
    from pfdl.contexts.network import find_by_eiil, find_by_jtt, find_by_spare

    automatic: dict[str, Finder] = {
        "pooled": find_pooled,
        "within": find_within,
        "early": find_early,
        "misled": find_misled,
    }
    _automatic.extend(automatic)
    published: dict[str, Finder] = {
        "jtt": find_by_jtt,
        "spare": find_by_spare,
        "eiil": find_by_eiil,
    }
    _finders.update(automatic | published)


def _known() -> dict[str, Finder]:
    _add_own()
    import_own_files()
    return {**_load_entry_points(), **_finders}


def _describe(name: str, finder: Finder) -> FinderInfo:
    first_paragraph = (inspect.getdoc(finder) or "").partition("\n\n")[0]
    settings = tuple(f"{key}={value!r}" for key, value in settings_of(finder).items())
    return FinderInfo(
        name, " ".join(first_paragraph.split()), reads(finder), settings, name in _automatic
    )
