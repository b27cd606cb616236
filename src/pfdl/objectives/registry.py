"""Names for objectives: the library's own, and those that others register."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from torch import nn

from pfdl._internal.own_files import import_own_files
from pfdl._internal.text import did_you_mean
from pfdl.decorrelation import PartialDecorrelation
from pfdl.objectives.objective import Objective
from pfdl.objectives.penalties import CORAL, IRM, CovarianceDecorrelation, VREx
from pfdl.objectives.weightings import (
    CNBB,
    DWR,
    Balance,
    BatchDWR,
    CVaR,
    GroupDRO,
    Product,
    StableNet,
    Weighting,
)
from pfdl.parts import DataShape

ENTRY_POINTS = "pfdl.objectives"
"""The group of entry points under which an installed package offers objectives."""

# Arguments of factories that come from the data, not from the user.
_OF_THE_DATA = {"shape", *DataShape.__dataclass_fields__}

# What a user has to bring for an objective that needs it.
_NEEDS_IN_WORDS = {"features": "features", "environments": "contexts"}

Factory = Callable[..., nn.Module | tuple[nn.Module, ...]]


@dataclass(frozen=True)
class ObjectiveInfo:
    """What ``pfdl list objectives`` says of a name.

    Attributes:
        name: What it is called.
        summary: What it does, one sentence.
        needs: What it reads of a batch besides logits and labels: ``"features"``, ``"contexts"``.
        settings: Its settings with their defaults, as ``name=default``.
        reference: The paper.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    settings: tuple[str, ...]
    reference: str


def _erm(shape: DataShape) -> tuple[nn.Module, ...]:
    """Minimise the mean loss, without penalty or weights (empirical risk minimisation)."""
    return ()


_factories: dict[str, Factory] = {
    "balance": Balance,
    "cnbb": CNBB,
    "coral": CORAL,
    "covariance": CovarianceDecorrelation,
    "cvar": CVaR,
    "dwr": BatchDWR,
    "dwr-samples": DWR,
    "erm": _erm,
    "groupdro": GroupDRO,
    "irm": IRM,
    "pfdl": PartialDecorrelation,
    "stablenet": StableNet,
    "vrex": VREx,
}


def register_objective(name: str, factory: Factory) -> None:
    """Give an objective a name, for :func:`make_objective`, ``pfdl train``, ``pfdl list`` and
    ``pfdl study``.

    An installed package can do the same without being imported first, by an entry point::

        [project.entry-points."pfdl.objectives"]
        mine = "my_package:MyPenalty"

    A file that is no package is named on the command line: ``pfdl train photos/ --import my.py
    --objective mine``.

    Args:
        name: Letters, digits and hyphens; not taken yet.
        factory: A class derived from :class:`pfdl.objectives.penalties.Penalty` or
            :class:`pfdl.objectives.weightings.Weighting`; or a function that takes a
            :class:`pfdl.objectives.DataShape` and the settings as keywords, and returns such a
            part, or several as a tuple.

    Raises:
        ValueError: If the name cannot be used or is taken.
        TypeError: If the factory cannot be called.

    Example:
        >>> from pfdl.objectives.penalties import Penalty
        >>> class Size(Penalty):
        ...     '''Penalise the mean squared feature.'''
        ...
        ...     def forward(self, features):
        ...         return features.square().mean()
        >>> register_objective("size-example", Size)
        >>> make_objective("erm+size-example", num_features=8).needs
        {'features'}
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ValueError(
            f"the name of the objective is {name!r}; give letters, digits and hyphens, such as"
            " 'my-penalty'."
        )
    if name in _known():
        raise ValueError(f"there is an objective {name!r} already; choose another name.")
    if not callable(factory):
        raise TypeError(
            f"the factory of {name!r} is a {type(factory).__name__}; give a class or a function."
        )
    _factories[name] = factory


def list_objectives() -> list[ObjectiveInfo]:
    """Return all objectives that can be named, in alphabetical order."""
    return [_describe(name, factory) for name, factory in sorted(_known().items())]


def check_objective_name(
    name: str, settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> None:
    """Raise ValueError unless :func:`make_objective` knows the name; nothing is built.

    Args:
        name: As for :func:`make_objective`.
        settings: Settings of its parts, of which only the names are looked at.

    Raises:
        ValueError: If a name is unknown or given twice, or settings are given for a part that the
            name does not have, or that the part does not know.
    """
    names = name.split("+")
    known = _known()
    for part in names:
        if part not in known:
            raise ValueError(
                f"{part!r} in the objective {name!r} is unknown; choose from"
                f" {', '.join(sorted(known))}, or join several with"
                f" '+'{did_you_mean(part, known) or '.'}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"the objective {name!r} names a part twice; give each once.")
    if unused := set(settings) - set(names):
        raise ValueError(
            f"settings for {', '.join(sorted(unused))} were given but the objective is {name!r}."
        )
    for part in names:
        _check_settings(part, known[part], settings.get(part, {}))


def make_objective(
    name: str,
    num_features: int,
    *,
    num_classes: int | None = None,
    num_contexts: int | None = None,
    label_smoothing: float = 0.0,
    **settings: Any,
) -> Objective:
    """Build an objective by name.

    Args:
        name: A name of :func:`list_objectives`, or several joined by ``+``, such as ``"irm+pfdl"``:
            penalties are added, weightings multiplied. ``"pfdl"`` is the paper's method.
        num_features: p, the width of the embedding.
        num_classes: Number of classes, for parts that ask for it.
        num_contexts: Number of contexts, for parts that ask for it.
        label_smoothing: See :class:`pfdl.Objective`.
        **settings: For each part of the name with other settings than its defaults, a mapping of
            its arguments: ``irm={"weight": 1e4, "anneal": 200}``.

    Returns:
        A new objective.

    Raises:
        ValueError: If a name is unknown or given twice, or if settings are given for a part that
            the name does not have, or that the part does not know or cannot use.

    Example:
        >>> make_objective("irm+pfdl", num_features=8, irm={"weight": 100.0}).needs == {
        ...     "features",
        ...     "logits",
        ...     "labels",
        ...     "environments",
        ... }
        True
    """
    check_objective_name(name, settings)
    known = _known()
    shape = DataShape(num_features, num_classes, num_contexts)
    penalties: list[nn.Module] = []
    weightings: list[Weighting] = []
    for key in name.split("+"):
        for part in _build(key, known[key], shape, settings.get(key, {})):
            if isinstance(part, Weighting):
                weightings.append(part)
            else:
                penalties.append(part)
    weighting = Product(weightings) if len(weightings) > 1 else next(iter(weightings), None)
    return Objective(penalties, weighting, label_smoothing=label_smoothing)


def _check_settings(name: str, factory: Factory, settings: Collection[str]) -> None:
    valid = _settings_of(factory)
    if unknown := set(settings) - set(valid):
        choice = f"it has {', '.join(valid)}" if valid else "it has none"
        hint = did_you_mean(min(unknown), valid) or "."
        raise ValueError(
            f"the objective {name!r} has no setting {', '.join(sorted(unknown))}; {choice}{hint}"
        )


def _build(
    name: str, factory: Factory, shape: DataShape, settings: Mapping[str, Any]
) -> tuple[nn.Module, ...]:
    build = getattr(factory, "from_data", factory)
    try:
        parts = build(shape, **settings)
    except TypeError as error:  # such as a word in place of a number
        raise ValueError(f"a setting of {name!r} cannot be used: {error}") from error
    return parts if isinstance(parts, tuple) else (parts,)


@cache
def _load_entry_points() -> Mapping[str, Factory]:
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}


def _known() -> dict[str, Factory]:
    import_own_files()
    return {**_load_entry_points(), **_factories}


def _settings_of(factory: Factory) -> dict[str, Any]:
    """Return the settings that a user may change, with their defaults, in order."""
    settings = {}
    for parameter in inspect.signature(factory).parameters.values():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if is_named and parameter.name not in _OF_THE_DATA:
            settings[parameter.name] = parameter.default
    return settings


def _describe(name: str, factory: Factory) -> ObjectiveInfo:
    first_paragraph = (inspect.getdoc(factory) or "").partition("\n\n")[0]
    summary = " ".join(first_paragraph.split())
    needs = getattr(factory, "needs", ())
    reads = tuple(words for need, words in _NEEDS_IN_WORDS.items() if need in needs)
    settings = tuple(f"{key}={value!r}" for key, value in _settings_of(factory).items())
    return ObjectiveInfo(name, summary, reads, settings, getattr(factory, "reference", ""))
