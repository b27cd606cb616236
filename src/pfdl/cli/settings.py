"""Settings of an objective as a user types them: ``--set pfdl.weight=0.1``."""

from __future__ import annotations

from typing import Any

from pfdl._internal.text import json_or_text


def parse_settings(objective: str, settings: list[str]) -> dict[str, dict[str, Any]]:
    """Turn ``pfdl.weight=0.1`` into a dictionary; names are checked before anything is read or trained."""
    valid = _valid_settings(objective)
    choice = f"{objective!r} has {', '.join(valid)}" if valid else f"{objective!r} has no settings"
    parsed: dict[str, dict[str, Any]] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        part, _, name = key.partition(".")
        if not equals or key not in [one.partition("=")[0] for one in valid]:
            raise ValueError(f"--set is {text!r}; give PART.NAME=VALUE: {choice}.")
        parsed.setdefault(part, {})[name] = json_or_text(value)
    return parsed


def _valid_settings(objective: str) -> list[str]:
    """Return the settings of all parts of an objective with their defaults, as ``pfdl.weight=1.0``."""
    from pfdl.objectives import list_objectives

    known = {one.name: one for one in list_objectives()}
    parts = objective.split("+")
    for part in parts:
        if part not in known:
            raise ValueError(
                f"{part!r} in the objective {objective!r} is unknown; choose from {', '.join(known)}, "
                "or join several with '+'."
            )
    return [f"{part}.{setting}" for part in parts for setting in known[part].settings]
