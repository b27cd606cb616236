"""Settings that a user keeps in a file, as YAML or JSON, or in the ``config.json`` of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfdl._internal.files import read_bytes_file

MOST_BYTES = 1 << 16
"""A file of settings has a few lines; YAML is read at some hundred thousand bytes a second."""
MOST_LEVELS = 20
"""The settings of a run are nested in four."""
SCALARS = (str, int, float, bool, type(None))
OBJECTIVE_SETTINGS = "objective_settings"
INFER_SETTINGS = "infer_settings"


def read_config_file(path: str | Path) -> dict[str, str]:
    """Return the settings that a file has, as a user would type them after ``--set``.

    A file is a mapping from names to values. Settings of an objective's part are typed
    ``pfdl.weight: 0.1``, or as a mapping below the part's name in ``objective_settings``. The
    ``config.json`` of a training's run folder is read, too.

    Args:
        path: A file that ends in .yaml, .yml or .json; or a run folder.

    Returns:
        Values as text, by the names of settings.

    Raises:
        ValueError: If the file cannot be read as settings.
        OSError: If there is no such file.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    content = _read(path)
    training = _training_of_a_run(content)
    content = content if training is None else training
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} has no settings; write a line 'name: value' for each.")
    settings: dict[str, str] = {}
    for name, value in _flat(content):
        if not isinstance(value, SCALARS):
            kind = type(value).__name__
            raise ValueError(f"{path} gives {name} as a {kind}; a setting is one word or number.")
        settings[name] = _typed(value)
    return settings


def _read(path: Path) -> Any:
    import yaml

    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError(f"{path} is no file of settings; its name ends in .yaml, .yml or .json.")
    content = read_bytes_file(path, MOST_BYTES)
    try:
        text = content.decode("utf-8")
        if path.suffix == ".json":
            return json.loads(text)
        _refuse_costly_yaml(text)
        return yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read as {path.suffix[1:].upper()}: {reason}") from None


def _refuse_costly_yaml(text: str) -> None:
    """Raise ValueError for YAML that would take minutes to read, or fill the memory."""
    import yaml

    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            # A few lines of references to references are a tree that fills the memory
            raise ValueError("it refers to another place by *; write the value there again")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_LEVELS:  # the time to read them grows with their square
            raise ValueError(f"it is nested in more than {MOST_LEVELS} levels")


def _training_of_a_run(content: Any) -> Any:
    """Return the settings of the training that a run folder's ``config.json`` describes, if any."""
    settings = content.get("settings") if isinstance(content, Mapping) else None
    return settings.get("training") if isinstance(settings, Mapping) else None


def _flat(content: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Return names and values; those of an objective's parts, and of the finder of contexts, as
    PART.NAME.
    """
    pairs: list[tuple[str, Any]] = []
    for name, value in content.items():
        if name == OBJECTIVE_SETTINGS and isinstance(value, Mapping):
            for part, inner in value.items():
                pairs += _dotted(part, inner)
        elif name == INFER_SETTINGS:
            pairs += _dotted(content.get("infer_by"), value)
        else:
            pairs.append((str(name), value))
    return pairs


def _dotted(part: Any, settings: Any) -> list[tuple[str, Any]]:
    if not isinstance(settings, Mapping):
        return []
    return [(f"{part}.{name}", value) for name, value in settings.items()]


def _typed(value: Any) -> str:
    """Return a value as a user would type it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    return json.dumps(value)
