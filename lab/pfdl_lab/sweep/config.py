"""What a sweep tries: every combination of declared values of the settings of ``pfdl train``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any, get_args, get_type_hints

from pfdl._internal.text import json_or_text
from pfdl._internal.validation import check_choice, check_count
from pfdl.objectives import list_objectives
from pfdl.vision.config import SELECTIONS, TrainingConfig

RESERVED = {"seed": "--seeds", "select": "--select", "objective_settings": "PART.NAME=VALUES, such as pfdl.weight=1,10"}
"""Settings that a sweep does not take by ``--set``, and what to use instead."""


@dataclass(frozen=True)
class SweepConfig:
    """What is tried, and how one of it is chosen. All of it is declared before anything is trained.

    Args:
        grid: For each setting the values to try: a field of :class:`pfdl.vision.training.TrainingConfig`, or a setting
            of a part of the objective such as ``"pfdl.weight"``, which counts where the objective has that part. Other
            settings have their defaults.
        select: Which accuracy on validation images chooses, both the epoch of a training and the candidate:
            ``"accuracy"``, ``"worst-class"`` or ``"worst-group"``.
        seeds: Trainings of each candidate, on paired seeds.
        first_seed: The first of them.

    Raises:
        ValueError: If a setting or a value cannot be used.
    """

    grid: Mapping[str, Sequence[Any]]
    select: str = "accuracy"
    seeds: int = 3
    first_seed: int = 0

    def __post_init__(self) -> None:
        check_choice("select", self.select, SELECTIONS)
        check_count("seeds", self.seeds, 1)
        check_count("first_seed", self.first_seed, 0)

    def candidates(self) -> dict[str, TrainingConfig]:
        """Return every combination once, by what tells it from the others, such as ``"objective=pfdl, epochs=5"``."""
        varied = [name for name, values in self.grid.items() if len(values) > 1]
        found: dict[str, TrainingConfig] = {}
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            parts = str(chosen.get("objective", TrainingConfig.objective)).split("+")
            plain = {name: value for name, value in chosen.items() if "." not in name}
            of_parts: dict[str, dict[str, Any]] = {}
            for name, value in chosen.items():
                part, dot, setting = name.partition(".")
                if dot and part in parts:
                    of_parts.setdefault(part, {})[setting] = value
            counting = [name for name in varied if "." not in name or name.partition(".")[0] in parts]
            label = ", ".join(f"{name}={_shown(chosen[name])}" for name in counting) or "as given"
            config = TrainingConfig(**plain, objective_settings=of_parts, select=self.select, seed=self.first_seed)
            found.setdefault(label, config)
        return found


def parse_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read ``["objective=erm,pfdl", "learning-rate=0.1,0.01"]``.

    Args:
        texts: What a user typed: a name, ``=``, and values with commas. Values of an objective's setting may be JSON
            lists.

    Returns:
        The values of each setting, for :class:`SweepConfig`.

    Raises:
        ValueError: If a name or a value cannot be used.

    Example:
        >>> parse_grid(["learning-rate=0.1,0.01", "objective=pfdl", "pfdl.hidden=[64,64],128", "precision=32"])
        {'learning_rate': [0.1, 0.01], 'objective': ['pfdl'], 'pfdl.hidden': [[64, 64], 128], 'precision': ['32']}
    """
    raw: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name if "." in name else name.replace("-", "_")
        if not equals or not values:
            raise ValueError(f"--set is {text!r}; give NAME=VALUE,VALUE, such as learning-rate=0.1,0.01.")
        if name in raw:
            raise ValueError(f"--set names {name} twice; give all its values at once, with commas.")
        raw[name] = values
    hints = {field.name: get_type_hints(TrainingConfig)[field.name] for field in fields(TrainingConfig)}
    objectives = raw.get("objective", TrainingConfig.objective).split(",")
    grid = {}
    for name, values in raw.items():
        if "." in name:
            _check_part(name, objectives)
            grid[name] = _split(values)
        elif name in RESERVED:
            raise ValueError(f"--set names {name}; for that use {RESERVED[name]}.")
        elif name not in hints:
            names = ", ".join(sorted(set(hints) - set(RESERVED)))
            raise ValueError(f"--set names {name!r}; choose from {names}, or a setting of an objective as PART.NAME.")
        else:
            grid[name] = [_typed(name, value, hints[name]) for value in _split(values, as_text=hints[name] is str)]
        if len({json.dumps(value) for value in grid[name]}) < len(grid[name]):
            raise ValueError(f"--set gives a value of {name} twice: {values}.")
    return grid


def as_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return a config without its seed, as what JSON can hold."""
    settings: dict[str, Any] = json.loads(json.dumps({**asdict(config), "seed": None}))
    del settings["seed"]
    return settings


def _check_part(name: str, objectives: Sequence[str]) -> None:
    known = {one.name: [setting.partition("=")[0] for setting in one.settings] for one in list_objectives()}
    part, _, setting = name.partition(".")
    tried = [one for objective in objectives for one in objective.split("+")]
    if part not in tried:
        raise ValueError(f"--set names {name}, but no objective of the sweep ({', '.join(objectives)}) has {part!r}.")
    if part in known and setting not in known[part]:
        raise ValueError(f"--set names {name}; {part!r} has {', '.join(known[part]) or 'no settings'}.")


def _split(text: str, *, as_text: bool = False) -> list[Any]:
    """Split values at commas, those inside brackets excepted."""
    if as_text:
        return text.split(",")
    try:
        values: list[Any] = json.loads(f"[{text}]")
    except ValueError:
        values = [json_or_text(value) for value in text.split(",")]
    return values


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Return a value if it is of the type of its field."""
    kinds = get_args(hint) or (hint,)
    if str in kinds and value is not None:
        return str(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = (
        (value is None and type(None) in kinds)
        or (isinstance(value, bool) and bool in kinds)
        or (is_number and float in kinds)
        or (is_number and int in kinds and isinstance(value, int))
    )
    if not fits:
        words = {float: "a number", int: "a whole number", bool: "true or false", type(None): "null"}
        raise ValueError(f"--set {name} is {value!r}; give {' or '.join(words[kind] for kind in kinds)}.")
    return value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
