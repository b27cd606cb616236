"""Settings as fields of frozen dataclasses: what is written there makes the checks, the command
line and its help.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Mapping
from dataclasses import field, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pfdl._internal.validation import check_choice, check_count, check_number

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


def setting(
    default: Any,
    *,
    minimum: float | None = None,
    maximum: float = math.inf,
    shown: bool = False,
    short: str = "",
) -> Any:
    """Declare a setting, a field of a frozen dataclass whose docstring explains it under ``Args:``.

    The words that it can be are a ``Literal`` in its annotation.

    Args:
        default: Its value by default.
        minimum: The least number that it can be; None for settings that are no numbers.
        maximum: The largest.
        shown: Whether commands have an option for it; all other settings are typed as ``--set
            NAME=VALUE``.
        short: The short form of that option, such as ``"-b"``.
    """
    return field(
        default=default,
        metadata={"minimum": minimum, "maximum": maximum, "shown": shown, "short": short},
    )


def check_settings(config: Any) -> None:
    """Raise unless every setting has a value that its declaration allows."""
    hints = get_type_hints(type(config))
    for one in fields(config):
        value = getattr(config, one.name)
        if get_origin(hints[one.name]) is Literal:
            check_choice(one.name, value, get_args(hints[one.name]))
        if hints[one.name] is bool and not isinstance(value, bool):
            raise TypeError(f"{one.name} is {value!r}; give True or False.")
        if one.metadata.get("minimum") is not None and value is not None:
            if float in (hints[one.name], *get_args(hints[one.name])):
                check_number(one.name, value, one.metadata["minimum"], one.metadata["maximum"])
            else:
                check_count(one.name, value, one.metadata["minimum"])


def describe_settings(config: type) -> dict[str, str]:
    """Return what the docstring says of each setting, as plain text.

    Example:
        >>> class Config:
        ...     '''How to bake.
        ...
        ...     Args:
        ...         hours: How long, see
        ...             :func:`bake`.
        ...     '''
        >>> describe_settings(Config)
        {'hours': 'How long, see bake.'}
    """
    section = (inspect.getdoc(config) or "").partition("Args:\n")[2].partition("\n\n")[0]
    plain = re.sub(r":\w+:`([^`]*)`|``([^`]*)``", lambda found: found[1] or found[2], section)
    entries = re.split(r"^ {4}(?=\w)", plain, flags=re.MULTILINE)[1:]
    pairs = (entry.partition(": ") for entry in entries)
    return {name: " ".join(words.split()) for name, _, words in pairs}


def read_setting(config: type, name: str, text: str) -> Any:
    """Return the value that a user typed for a setting.

    Raises:
        ValueError: If it is of another kind than the setting.
    """
    hint = get_type_hints(config)[name]
    if get_origin(hint) is Literal:
        return text  # the config checks it
    kinds = get_args(hint) or (hint,)
    if NoneType in kinds and text.lower() in ("", "none", "null"):
        return None
    kind = next(one for one in kinds if one is not NoneType)
    try:
        return _WORDS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ValueError(f"{name} is {text!r}; give {_KINDS[kind]}.") from None


def write_options(config: Any) -> list[str]:
    """Return what a user types for the settings that are not the defaults."""
    words: list[str] = []
    for one in fields(config):
        value = getattr(config, one.name)
        pairs: list[tuple[str, Any]] = []
        if isinstance(value, Mapping):
            for part, inner in value.items():
                pairs += [(f"{part}.{name}", content) for name, content in inner.items()]
        elif value != one.default:
            pairs.append((one.name, value))
        for name, content in pairs:
            text = content if isinstance(content, str) else json.dumps(content)
            long = name.replace("_", "-")
            if not one.metadata.get("shown"):
                words += ["--set", f"{name}={text}"]
            elif isinstance(content, bool):
                words.append(f"--{long}" if content else f"--no-{long}")
            else:
                words += [f"--{long}", text]
    return words
