"""Settings of an objective as a user types them: ``--set pfdl.weight=0.1``."""

from __future__ import annotations

from typing import Any

from pfdl._internal.text import json_or_text


def parse_settings(objective: str, settings: list[str]) -> dict[str, dict[str, Any]]:
    """Turn ``pfdl.weight=0.1`` into a dictionary; names and values are checked before anything is read or trained."""
    from pfdl.objectives import list_objectives
    from pfdl.objectives.examples import make_example

    make_example(objective, {})  # raises if there is no such objective
    known = {one.name: one.settings for one in list_objectives()}
    valid = [f"{part}.{setting}" for part in objective.split("+") for setting in known[part]]
    choice = f"{objective!r} has {', '.join(valid)}" if valid else f"{objective!r} has no settings"
    parsed: dict[str, dict[str, Any]] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        part, _, name = key.partition(".")
        if not equals or key not in [one.partition("=")[0] for one in valid]:
            raise ValueError(f"--set is {text!r}; give PART.NAME=VALUE: {choice}.")
        parsed.setdefault(part, {})[name] = json_or_text(value)
    make_example(objective, parsed)
    return parsed
