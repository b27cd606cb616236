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
            has_settings = "settings" in [parameter.name for parameter in self.params]
            if option.startswith("--") and has_settings:
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
    defaults: Mapping[str, Any] = MappingProxyType({}),
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
        # Typing's hints lose options in Python 3.10
        own = inspect.signature(command, eval_str=True).parameters
        parameters = _make_parameters(own, without, all_shown, defaults)

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
            arguments = {name: given.pop(name) for name in own if name in given}
            written = {} if config_file is None else read_config_file(config_file)
            typed = {name: str(value) for name, value in given.items() if _is_typed(context, name)}
            kinds = {name: own[name].annotation for name in own if name not in arguments}
            if TypedSettings in kinds.values():
                arguments |= _leave_unread(kinds, typed)
            texts = gather_texts(kinds, typed, settings or [], written, without)
            command(**arguments, **read_settings(kinds, texts, without, defaults))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _is_typed(context: typer.Context, name: str) -> bool:
    """Return whether an option was typed, or set by its environment variable."""
    source = context.get_parameter_source(name)
    return source is not None and not source.name.startswith("DEFAULT")


def _leave_unread(kinds: dict[str, Any], typed: dict[str, str]) -> dict[str, TypedSettings]:
    """Take what is to stay unread out of the kinds of settings, and out of what was typed."""
    (name,) = [name for name, kind in kinds.items() if kind is TypedSettings]
    del kinds[name]
    training = {field.name for field in _settings_of(TrainingConfig, ())}
    return {name: TypedSettings({key: typed.pop(key) for key in training & typed.keys()})}


def gather_texts(
    kinds: Mapping[str, Any],
    typed: Mapping[str, str],
    sets: Sequence[str],
    written: Mapping[str, str],
    without: Collection[str] = (),
) -> dict[str, str]:
    """Return what a user says of each setting, as text: typed as ``--set``, else as an option, else
    written into a file, else what fits the rest.

    Args:
        kinds: The dataclasses of settings, by the name of the command's parameter.
        typed: The options that were typed.
        sets: What was typed after ``--set``, as NAME=VALUE.
        written: The settings of a file.
        without: Settings that the command does not have.

    Raises:
        ValueError: If a name is not known.
    """
    known: set[str] = set()
    for kind in kinds.values():
        known |= {field.name for field in _settings_of(kind, without)}
    for name in written:
        if "." not in name and name not in known:
            raise ValueError(
                f"the file of settings names {name!r}, which this command does not have"
                f"{did_you_mean(name, known) or '.'}"
            )
    if "objective" in typed:  # another one: the settings of the file's objective go with it
        written = {name: text for name, text in written.items() if "." not in name}
    texts = {**written, **typed, **split_settings(sets, known)}
    if TrainingConfig not in kinds.values():
        return texts
    backbone = texts.get("backbone", "")
    if backbone.startswith(FEATURES):  # a readout on these features
        texts |= {"backbone": READOUT, "features": backbone.removeprefix(FEATURES)}
    return {**presets_of(texts), **texts}


def read_settings(
    kinds: Mapping[str, Any],
    texts: Mapping[str, str],
    without: Collection[str] = (),
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the configs that texts mean.

    Args:
        kinds: The dataclasses of settings, by the name of the command's parameter.
        texts: What a user says of each setting.
        without: Settings that the command does not have.
        defaults: Of settings that have another default in this command.

    Raises:
        ValueError: If a value is wrong.
    """
    made = {}
    for parameter, kind in kinds.items():
        names = [field.name for field in _settings_of(kind, without)]
        own = {name: defaults[name] for name in names if name in defaults}
        own |= {name: read_setting(kind, name, texts[name]) for name in names if name in texts}
        if kind is TrainingConfig:
            own |= _read_parts(texts)
        made[parameter] = kind(**own)
    return made


def _read_parts(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return what was typed as PART.NAME=VALUE: of the finder of contexts, the rest of the
    objective.
    """
    finder = texts.get("infer_by", TrainingConfig.infer_by)
    of_finder = {}
    of_objective = {}
    for name, text in texts.items():
        part, dot, setting = name.partition(".")
        if dot and part == finder:
            of_finder[setting] = json_or_text(text)
        elif dot:
            of_objective[name] = text
    objective = texts.get("objective", TrainingConfig.objective)
    return {
        "infer_settings": of_finder,
        "objective_settings": read_objective_settings(objective, of_objective),
    }


def split_settings(texts: Sequence[str], known: Collection[str]) -> dict[str, str]:
    """Return what was typed for each setting, as NAME=VALUE; ValueError unless its name is known or
    PART.NAME.
    """
    typed: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name if "." in name else name.replace("-", "_")
        if not equals or ("." not in name and name not in known) or name in typed:
            why = f"give NAME=VALUE, a NAME of {', '.join(sorted(known))}"
            if name in typed:
                why = "names it twice"
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
    return [field for field in fields(kind) if field.metadata and field.name not in without]


def _make_parameters(
    own: Mapping[str, inspect.Parameter],
    without: Collection[str],
    all_shown: bool,
    defaults: Mapping[str, Any],
) -> list[inspect.Parameter]:
    """Return the parameters from which Typer makes options: those of a command, each dataclass
    exchanged for its settings.
    """
    parameters = [_keyword("context", typer.Context, None, inspect.Parameter.empty)]
    has_settings = False
    for parameter in own.values():
        if is_dataclass(parameter.annotation):
            has_settings = True
            parameters += _make_options(parameter.annotation, without, all_shown, defaults)
        elif parameter.annotation is TypedSettings:
            for option in _make_options(TrainingConfig, without, False, {}):
                _, how = get_args(option.annotation)
                parameters.append(_keyword(option.name, str | None, how))
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
    if has_settings and not all_shown:
        option = typer.Option("--set", metavar="NAME=VALUE", help=SET)
        parameters.append(_keyword("settings", list[str] | None, option))
        option = typer.Option("--config", metavar="FILE", help=CONFIG)
        parameters.append(_keyword("config_file", Path | None, option))
    option = typer.Option("--import", metavar="FILE.py", help=IMPORT)
    return [*parameters, _keyword("own_files", list[Path] | None, option)]


def _make_options(
    kind: Any, without: Collection[str], all_shown: bool, defaults: Mapping[str, Any]
) -> list[inspect.Parameter]:
    words = describe_settings(kind)
    hints = get_type_hints(kind)
    options = []
    for field in _settings_of(kind, without):
        if not field.metadata["shown"] and not all_shown:
            continue
        names = [f"--{field.name.replace('_', '-')}", field.metadata["short"]]
        if hints[field.name] is bool:
            names[0] += f"/--no-{names[0][2:]}"
        option = typer.Option(*filter(None, names), help=words[field.name])
        # The config checks choices
        kind_here = str if get_origin(hints[field.name]) is Literal else hints[field.name]
        default = defaults.get(field.name, field.default)
        options.append(_keyword(field.name, kind_here, option, default))
    return options


def _keyword(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default
    )
