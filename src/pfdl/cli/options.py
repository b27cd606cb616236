"""Options that are made from settings: a command that takes a config gets its options, and
``--set`` for the rest.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from pfdl._internal.config_files import read_config_file
from pfdl._internal.own_files import add_own_files
from pfdl._internal.settings import describe_settings, read_setting
from pfdl._internal.text import did_you_mean, json_or_text
from pfdl.cli.common import exit_on_user_error
from pfdl.vision.config import FEATURES, READOUT, TrainingConfig, presets_of

SET = "A further setting; 'pfdl list settings' lists them. Can be given several times."
CONFIG = (
    "A file of settings, .yaml or .json, or a run folder whose settings to take; what is typed here"
    " comes before what the file says."
)
IMPORT = (
    "A file of your own that registers objectives or backbones; also the variable PFDL_IMPORT. Can"
    " be given several times."
)


class TypedSettings(dict[str, str]):
    """What was typed for the settings of a training, by their names; others are not in it.

    A command with a parameter of this kind has the options of ``pfdl train``, unread, so that one
    may have several values.
    """


class _Command(typer.core.TyperCommand):
    """A command that answers an option which does not exist with how settings are typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Return what is left of the command line once options are read."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # Typer's own class for it has moved between versions
            option = getattr(error, "option_name", "")
            if option.startswith("--") and any(one.name == "settings" for one in self.params):
                hint = (
                    f"Settings without an option are given as --set {option[2:]}=VALUE; see 'pfdl"
                    " list settings'."
                )
                error.message = f"{error.message} {hint}"  # type: ignore[attr-defined]
            raise


def add_command(group: typer.Typer, name: str, command: Callable[..., None] | typer.Typer) -> None:
    """Add a command to a group; its docstring is the help, and a Typer application is a group of
    commands.
    """
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name)
    else:
        is_ready = hasattr(command, "__signature__")  # made by takes_settings
        group.command(name, cls=_Command)(command if is_ready else takes_settings()(command))


def takes_settings(
    *,
    without: Collection[str] = (),
    all_shown: bool = False,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Let a command take dataclasses of settings as parameters.

    Settings that are declared as shown become options of the command; ``--set NAME=VALUE`` sets any
    of them. Mistakes are answered with sentences, and files of one's own imported by ``--import``.

    Args:
        without: Settings that the command does not have.
        all_shown: Whether all settings become options; the command then has no ``--set``, or one of
            its own.
        defaults: Of settings that have another default in this command; they must become options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        form = _Form(command, without, all_shown, defaults or {})

        @functools.wraps(command)
        @exit_on_user_error()
        def run(
            context: typer.Context,
            settings: list[str] | None = None,
            config_file: Path | None = None,
            own_files: list[Path] | None = None,
            **given: Any,
        ) -> None:
            if own_files:
                add_own_files(own_files)
            written = {} if config_file is None else read_config_file(config_file)
            command(**form.read(context, given, settings or [], written))

        parameters = form.parameters()
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


class _Form:
    """What a user types for a command that takes dataclasses of settings, and what it means."""

    def __init__(
        self,
        command: Callable[..., None],
        without: Collection[str],
        all_shown: bool,
        defaults: Mapping[str, Any],
    ) -> None:
        # Typing's hints lose options in Python 3.10
        self._own = inspect.signature(command, eval_str=True).parameters
        self._kinds = {
            name: one.annotation for name, one in self._own.items() if is_dataclass(one.annotation)
        }
        self._unread = [_as_text(one) for one in _make_options(TrainingConfig, without, False, {})]
        self._without = without
        self._all_shown = all_shown
        self._defaults = defaults

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters from which Typer makes options."""
        parameters = [_keyword("context", typer.Context, None, inspect.Parameter.empty)]
        for one in self._own.values():
            if one.name in self._kinds:
                parameters += _make_options(
                    self._kinds[one.name], self._without, self._all_shown, self._defaults
                )
            elif one.annotation is TypedSettings:
                parameters += self._unread
            else:
                parameters.append(one.replace(kind=one.KEYWORD_ONLY))
        if self._kinds and not self._all_shown:
            option = typer.Option("--set", metavar="NAME=VALUE", help=SET)
            parameters.append(_keyword("settings", list[str] | None, option, None))
            option = typer.Option("--config", metavar="FILE", help=CONFIG)
            parameters.append(_keyword("config_file", Path | None, option, None))
        option = typer.Option("--import", metavar="FILE.py", help=IMPORT)
        parameters.append(_keyword("own_files", list[Path] | None, option, None))
        return parameters

    def read(
        self,
        context: typer.Context,
        given: Mapping[str, Any],
        texts: Sequence[str],
        written: Mapping[str, str],
    ) -> dict[str, Any]:
        """Return the arguments of the command.

        Args:
            context: Says what was typed.
            given: Values of the options.
            texts: What was typed after ``--set``.
            written: The settings of a file.
        """
        if TrainingConfig in self._kinds.values():
            given = _name_features(given)
            written = _name_features(written)
            asked = {**given, **written, **dict(map(_pair, texts))}
            written = {**presets_of(asked), **written}
        untyped = _untyped(written, context)
        arguments = read_settings(self._kinds, given, texts, self._without, untyped)
        for name, one in self._own.items():
            if name in given:
                arguments[name] = given[name]
            elif one.annotation is TypedSettings:
                arguments[name] = self._typed(given)
        return arguments

    def _typed(self, given: Mapping[str, Any]) -> TypedSettings:
        names = [option.name for option in self._unread]
        return TypedSettings({name: given[name] for name in names if given[name] is not None})


def read_settings(
    kinds: Mapping[str, Any],
    options: Mapping[str, Any],
    texts: Sequence[str],
    without: Collection[str] = (),
    written: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the configs that a user typed, as options and as ``--set``, and wrote into a file.

    Args:
        kinds: The dataclasses of settings, by the name of the command's parameter.
        options: Values of the command's options; defaults included.
        texts: What was typed after ``--set``, as NAME=VALUE.
        without: Settings that the command does not have.
        written: Settings of a file, as text; those that were typed as options are not among them.

    Raises:
        ValueError: If a name or value is wrong.
    """
    homes: dict[str, Any] = {}
    for kind in kinds.values():
        homes.update(dict.fromkeys((one.name for one in _settings_of(kind, without)), kind))
    values = {name: value for name, value in options.items() if name in homes}
    _check_names(written, homes)
    typed = {**written, **split_settings(texts, homes)}
    parts: dict[str, str] = {}
    for name, text in typed.items():
        if "." in name:
            parts[name] = text
        else:
            values[name] = read_setting(homes[name], name, text)
    made = {}
    for parameter, kind in kinds.items():
        own = {name: value for name, value in values.items() if homes[name] is kind}
        if "objective_settings" in {one.name for one in fields(kind)}:
            own |= _read_parts(parts, str(own.get("infer_by", "auto")), own["objective"])
        made[parameter] = kind(**own)
    return made


def _read_parts(parts: Mapping[str, str], finder: str, objective: str) -> dict[str, Any]:
    """Return what was typed as PART.NAME=VALUE: of the finder of contexts, the rest of the
    objective.
    """
    of_finder = {}
    of_objective = {}
    for name, text in parts.items():
        part, _, setting = name.partition(".")
        if part == finder:
            of_finder[setting] = json_or_text(text)
        else:
            of_objective[name] = text
    return {
        "infer_settings": of_finder,
        "objective_settings": read_objective_settings(objective, of_objective),
    }


def _name_features(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which a backbone ``features:NETWORK`` is a readout on these features."""
    backbone = str(given.get("backbone", ""))
    if not backbone.startswith(FEATURES):
        return dict(given)
    return {**given, "backbone": READOUT, "features": backbone.removeprefix(FEATURES)}


def _pair(text: str) -> tuple[str, str]:
    """Return the name and the value of ``NAME=VALUE``; what is wrong with them is said later."""
    name, _, value = text.partition("=")
    return name.replace("-", "_"), value


def _is_typed(context: typer.Context, name: str) -> bool:
    """Return whether an option was typed, or set by its environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and not source.name.startswith("DEFAULT")


def _untyped(written: Mapping[str, str], context: typer.Context) -> dict[str, str]:
    """Return the settings of a file but for those typed as options.

    Where another objective is typed, the settings of the file's objective go with it.
    """
    with_parts = not _is_typed(context, "objective")
    return {
        name: text
        for name, text in written.items()
        if (with_parts if "." in name else not _is_typed(context, name))
    }


def _check_names(written: Mapping[str, str], known: Collection[str]) -> None:
    for name in written:
        if "." not in name and name not in known:
            raise ValueError(
                f"the file of settings names {name!r}, which this command does not have"
                f"{did_you_mean(name, known) or '.'}"
            )


def split_settings(texts: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """Return what was typed for each setting, as NAME=VALUE; ValueError unless its name is known or
    PART.NAME.
    """
    typed: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name if "." in name else name.replace("-", "_")
        if not equals or ("." not in name and name not in known) or name in typed:
            why = (
                "names it twice"
                if name in typed
                else f"give NAME=VALUE, a NAME of {', '.join(sorted(known))}"
            )
            raise ValueError(f"--set is {text!r}; {why}{did_you_mean(name, known) or '.'}")
        typed[name] = value
    return typed


def read_objective_settings(objective: str, texts: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Turn ``pfdl.weight=0.1`` into a dictionary; names are checked before anything is read."""
    from pfdl.objectives import check_objective_name

    parsed: dict[str, dict[str, Any]] = {}
    for key, value in texts.items():
        part, _, name = key.partition(".")
        parsed.setdefault(part, {})[name] = json_or_text(value)
    check_objective_name(objective, parsed)
    return parsed


def _settings_of(kind: Any, without: Collection[str]) -> list[Field[Any]]:
    return [one for one in fields(kind) if one.metadata and one.name not in without]


def _make_options(
    kind: Any, without: Collection[str], all_shown: bool, defaults: Mapping[str, Any]
) -> list[inspect.Parameter]:
    words = describe_settings(kind)
    hints = get_type_hints(kind)
    made = []
    for one in _settings_of(kind, without):
        if one.metadata["shown"] or all_shown:
            long = f"--{one.name.replace('_', '-')}"
            names = [
                f"{long}/--no-{long[2:]}" if hints[one.name] is bool else long,
                one.metadata["short"],
            ]
            option = typer.Option(*filter(None, names), help=words[one.name])
            # The config checks choices
            kind_here = str if get_origin(hints[one.name]) is Literal else hints[one.name]
            made.append(_keyword(one.name, kind_here, option, defaults.get(one.name, one.default)))
    return made


def _as_text(option: inspect.Parameter) -> inspect.Parameter:
    """Return an option that takes any text, and is None unless it is typed."""
    _, how = get_args(option.annotation)
    return _keyword(option.name, str | None, how, None)


def _keyword(name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )
