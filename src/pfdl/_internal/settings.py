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
LARGEST_COUNT = 2**32 - 1
"""Of a setting that is a whole number; NumPy's generators and scikit-learn take no larger seed."""
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
    for declared in fields(config):
        value = getattr(config, declared.name)
        if get_origin(hints[declared.name]) is Literal:
            check_choice(declared.name, value, get_args(hints[declared.name]))
        if hints[declared.name] is bool and not isinstance(value, bool):
            raise TypeError(f"{declared.name} is {value!r}; give True or False.")
        minimum = declared.metadata.get("minimum")
        if minimum is None or value is None:
            continue
        if float in (hints[declared.name], *get_args(hints[declared.name])):
            check_number(declared.name, value, minimum, declared.metadata["maximum"])
        else:
            check_count(declared.name, value, minimum, LARGEST_COUNT)


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
    plain = re.sub(r":\w+:`([^`]*)`|``([^`]*)``", lambda match: match[1] or match[2], section)
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
    kind = next(inner for inner in kinds if inner is not NoneType)
    try:
        return _WORDS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ValueError(f"{name} is {text!r}; give {_KINDS[kind]}.") from None


def write_options(config: Any) -> list[str]:
    """Return what a user types for the settings that are not the defaults."""
    words: list[str] = []
    for declared in fields(config):
        value = getattr(config, declared.name)
        pairs: list[tuple[str, Any]] = []
        if isinstance(value, Mapping):
            for part, inner in value.items():
                pairs += [(f"{part}.{name}", content) for name, content in inner.items()]
        elif value != declared.default:
            pairs.append((declared.name, value))
        for name, content in pairs:
            text = content if isinstance(content, str) else json.dumps(content)
            long = name.replace("_", "-")
            if not declared.metadata.get("shown"):
                words += ["--set", f"{name}={text}"]
            elif isinstance(content, bool):
                words.append(f"--{long}" if content else f"--no-{long}")
            else:
                words += [f"--{long}", text]
    return words
