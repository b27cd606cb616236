from typer.testing import CliRunner

from pfdl import __version__
from pfdl.cli.main import app

runner = CliRunner()


def test_help_lists_the_commands():
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "demo" in result.output
    assert "reproduce" in result.output


def test_a_wrong_option_is_a_sentence_not_a_traceback():
    result = runner.invoke(app, ["train", "shapes", "--seeds", "0"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_help_is_broken_at_the_width_of_the_terminal():
    result = CliRunner().invoke(app, ["sweep", "--help"], env={"COLUMNS": "300"})
    assert "An interrupted sweep resumes when started again with the same output folder." in result.output
    assert "$ pfdl sweep photos/ --set objective=erm,pfdl" in result.output


def test_the_version_is_printed():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"pfdl {__version__}\n"
