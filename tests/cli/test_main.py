import importlib
import sys
from importlib.metadata import EntryPoint

from typer.testing import CliRunner

from pfdl import __version__
from pfdl.cli.main import app

runner = CliRunner()


def test_the_version_is_printed():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"pfdl {__version__}\n"


def test_commands_of_another_package_join(monkeypatch):
    """Each entry point of the group is a command; one that cannot be loaded takes no other command
    away.
    """
    entries = [
        EntryPoint("greet", "tests.cli.test_main:greet", "pfdl.commands"),
        EntryPoint("broken", "tests.cli.test_main:nothing", "pfdl.commands"),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: entries if group == "pfdl.commands" else []
    )
    monkeypatch.delitem(sys.modules, "pfdl.cli.main")
    joined = importlib.import_module("pfdl.cli.main").app
    assert "hello" in runner.invoke(joined, ["greet"]).output
    assert "train" in runner.invoke(joined, ["--help"]).output
    assert runner.invoke(joined, ["broken"]).exit_code == 2


def test_without_the_laboratory_its_commands_say_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    monkeypatch.delitem(sys.modules, "pfdl.cli.main")
    alone = importlib.import_module("pfdl.cli.main").app
    for command in (["reproduce", "mmads"], ["demo"]):
        result = runner.invoke(alone, command)
        assert result.exit_code == 2
        assert "pip install ./lab" in result.output


def greet() -> None:
    """Say hello."""
    print("hello")
