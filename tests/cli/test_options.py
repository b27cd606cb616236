"""An option is one field of a config and one line of its docstring; the command line is made from
them.
"""

from dataclasses import dataclass
from typing import Literal

import pytest
import typer
from typer.testing import CliRunner

from pfdl._internal.settings import (
    check_settings,
    describe_settings,
    read_setting,
    setting,
    write_options,
)
from pfdl.cli.options import add_command, takes_settings


@dataclass(frozen=True)
class Baking:
    """How to bake.

    Args:
        hours: How long,
            in hours.
        grain: ``rye`` or wheat, see :func:`mill`.
        crust: Whether it has a crust.
        salt: Grams of salt.
    """

    hours: int = setting(2, minimum=1, shown=True, short="-t")
    grain: Literal["rye", "wheat"] = setting("rye")
    crust: bool = setting(True, shown=True)
    salt: float | None = setting(None, minimum=0, maximum=9)

    def __post_init__(self):
        check_settings(self)


@takes_settings(without=("salt",))
def bake(flour: str, how: Baking) -> None:
    """Bake bread."""
    typer.echo(f"{flour}: {how}")


app = typer.Typer()
add_command(app, "bake", bake)
add_command(app, "list", lambda: None)


def run(*arguments):
    return CliRunner().invoke(app, ["bake", "fine", *arguments], env={"COLUMNS": "200"})


def test_a_field_becomes_an_option_with_the_words_of_the_docstring():
    text = CliRunner().invoke(app, ["bake", "--help"], env={"COLUMNS": "200"}).output
    assert "How long, in hours." in text
    assert "--no-crust" in text
    assert "--grain" not in text
    assert describe_settings(Baking)["grain"] == "rye or wheat, see mill."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Baking()),
        (["-t", "5", "--no-crust", "--set", "grain=wheat"], Baking(5, "wheat", False)),
        (["--set", "hours=3", "--set", "crust=no"], Baking(3, crust=False)),
    ],
)
def test_what_is_typed_is_the_config(arguments, expected):
    assert run(*arguments).output == f"fine: {expected}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "grian=rye"], "did you mean 'grain'?"),
        (["--set", "salt=3"], "give NAME=VALUE, a NAME of crust, grain, hours."),
        (["--set", "grain=oats"], "grain is 'oats'; choose one of 'rye', 'wheat'."),
        (["--set", "hours=long"], "hours is 'long'; give a whole number."),
        (["-t", "0"], "hours is 0; it must be at least 1."),
        (["-t", "9" * 20], f"hours is {'9' * 20}; it must be at most 4294967295."),
        (["--grain", "rye"], "--set grain=VALUE"),
    ],
)
def test_a_mistake_is_answered_with_what_is_right(arguments, sentence):
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_config_is_written_as_it_is_typed():
    how = Baking(5, "wheat", salt=1.5)
    words = write_options(how)
    assert words == ["--hours", "5", "--set", "grain=wheat", "--set", "salt=1.5"]
    assert write_options(Baking()) == []
    assert [read_setting(Baking, "salt", text) for text in ("1.5", "none")] == [1.5, None]
    assert write_options(Baking(crust=False)) == ["--no-crust"]


@pytest.mark.parametrize("salt", [-1.0, 10.0, float("nan")])
def test_a_number_outside_its_bounds_is_refused(salt):
    with pytest.raises(ValueError, match=f"salt is {salt}"):
        Baking(salt=salt)
    with pytest.raises(TypeError, match="crust is 'no'; give True or False"):
        Baking(crust="no")
