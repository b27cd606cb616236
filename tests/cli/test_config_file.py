"""Settings from a file: what is typed comes before it, and what cannot be read is refused."""

import contextlib
import json
import re
from dataclasses import dataclass
from typing import Literal

import pytest
import typer
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from pfdl._internal.config_files import read_config_file
from pfdl._internal.settings import check_settings, setting
from pfdl.cli.options import add_command, takes_settings
from pfdl.vision.config import TrainingConfig


@dataclass(frozen=True)
class Baking:
    """How to bake.

    Args:
        hours: How long.
        grain: Of what.
        crust: Whether it has a crust.
    """

    hours: int = setting(2, minimum=1, shown=True)
    grain: Literal["rye", "wheat"] = setting("rye")
    crust: bool = setting(True, shown=True)

    def __post_init__(self):
        check_settings(self)


@takes_settings()
def bake(how: Baking) -> None:
    """Bake bread."""
    typer.echo(f"{how}")


@takes_settings()
def fit(config: TrainingConfig) -> None:
    """Say what would be fitted."""
    typer.echo(f"{config.objective} {config.epochs} {dict(config.objective_settings)}")


@takes_settings()
def search(config: TrainingConfig) -> None:
    """Say how contexts would be found."""
    typer.echo(f"{config.infer_by} {dict(config.infer_settings)}")


app = typer.Typer()
add_command(app, "bake", bake)
add_command(app, "fit", fit)
add_command(app, "search", search)


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


@pytest.fixture
def written(tmp_path):
    def write(text, name="run.yaml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_file_sets_what_is_not_typed(written):
    file = written("hours: 5\ngrain: wheat\ncrust: false\n")
    assert run("bake", "--config", file).output == f"{Baking(5, 'wheat', False)}\n"


def test_what_is_typed_comes_before_the_file(written):
    file = written("hours: 5\ngrain: wheat\ncrust: false\n")
    typed = run("bake", "--config", file, "--hours", "2", "--set", "grain=rye")
    assert typed.output == f"{Baking(2, 'rye', False)}\n"


def test_settings_of_a_part_are_dotted_or_nested(written):
    dotted = written("objective: pfdl\npfdl.weight: 0.5\n", "dotted.yaml")
    nested = written(
        json.dumps({"objective": "pfdl", "objective_settings": {"pfdl": {"weight": 0.5}}}),
        "nested.json",
    )
    for file in (dotted, nested):
        assert run("fit", "--config", file).output == "pfdl 40 {'pfdl': {'weight': 0.5}}\n"


def test_settings_of_the_finder_of_contexts_are_those_of_a_run(written):
    finder = {"infer_by": "jtt", "infer_settings": {"upweight": 7}}
    file = written(json.dumps({"contexts": "inferred", "infer_epochs": 2, **finder}), "run.json")
    assert run("search", "--config", file).output == "jtt {'upweight': 7}\n"


def test_another_objective_leaves_the_settings_of_the_files_objective_out(written):
    file = written("objective: pfdl\nepochs: 3\npfdl.weight: 0.5\n")
    assert run("fit", "--config", file, "--objective", "erm").output == "erm 3 {}\n"


def test_the_config_of_a_run_is_read(tmp_path):
    training = {"objective": "pfdl", "epochs": 7, "objective_settings": {"pfdl": {"weight": 2}}}
    about = {"format": "pfdl-run-2", "kind": "training", "settings": {"training": training}}
    (tmp_path / "config.json").write_text(json.dumps(about), encoding="utf-8")
    for named in (tmp_path, tmp_path / "config.json"):
        assert run("fit", "--config", named).output == "pfdl 7 {'pfdl': {'weight': 2}}\n"


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("houres: 5", "run.yaml", "which this command does not have; did you mean 'hours'?"),
        ("hours: [1, 2]", "run.yaml", "gives hours as a list"),
        ("hours: 1.5", "run.yaml", "hours is '1.5'; give a whole number."),
        ("grain: oats", "run.yaml", "choose one of 'rye', 'wheat'"),
        ("- hours", "run.yaml", "has no settings"),
        ("hours: 'a", "run.yaml", "cannot be read as YAML"),
        ("{", "run.json", "cannot be read as JSON"),
        ("!!python/object/apply:os.system ['true']", "run.yaml", "cannot be read as YAML"),
        ("[" * 60_000, "run.json", "cannot be read as JSON"),
        ("hours: 5", "run.txt", "its name ends in .yaml, .yml or .json"),
        ("#" * 1_000_001, "run.yaml", "more than 65536 are not read"),
    ],
)
def test_what_cannot_be_used_is_answered_with_a_sentence(written, text, name, sentence):
    answer = run("bake", "--config", written(text, name))
    assert answer.exit_code == 2
    assert sentence in " ".join(answer.stderr.split())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hours: &a 5\ngrain: *a", "it refers to another place by *; write the value there again"),
        ("[" * 60_000, "it is nested in more than 20 levels"),
        ("- " * 30_000, "it is nested in more than 20 levels"),
    ],
)
def test_yaml_that_could_fill_the_memory_or_take_minutes_is_refused(written, text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_config_file(written(text))


@given(st.binary(max_size=200))
def test_whatever_bytes_a_file_has_they_are_settings_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("config") / "run.yaml"
    path.write_bytes(content)
    with contextlib.suppress(ValueError):
        assert all(isinstance(text, str) for text in read_config_file(path).values())
