"""The laboratory beside the library: one version, and commands that are loaded when they are asked
for.
"""

import re
from importlib.metadata import version

import pytest
import typer
from tests.cli.typing_commands import typed
from tests.test_docs import OF_THE_LABORATORY, PAGES, name, run_blocks
from tests.test_package import modules_after
from typer.testing import CliRunner

import pfdl
from pfdl.cli.main import app


def test_both_distributions_have_one_version():
    assert version("pfdl") == version("pfdl-lab") == pfdl.__version__


@pytest.mark.usefixtures("children_uncounted")
@pytest.mark.parametrize(
    ("arguments", "is_loaded"),
    [("'train', '--help'", False), ("'report', '--help'", False), ("'--help'", True)],
)
def test_the_laboratorys_commands_are_loaded_when_they_are_asked_for(arguments, is_loaded):
    loaded = modules_after(
        f"from pfdl.cli.main import app; app([{arguments}], standalone_mode=False)"
    )
    assert ("pfdl_lab.cli.study" in loaded) == is_loaded
    assert not any(name.startswith("pfdl_lab") for name in loaded) or "train" not in arguments
    assert "torch" not in loaded


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize("page", OF_THE_LABORATORY, ids=name)
def test_the_code_on_pages_about_the_laboratory_runs(page):
    run_blocks(page)


def test_every_command_and_option_that_a_page_shows_exists():
    shown = re.compile(r"^(?:\$ )?pfdl (\w(?:[^\n]*\\\n)*[^#\n]*)", re.MULTILINE)
    named = re.compile(r"`pfdl (\w[^`]*)`")
    commands = {(): typer.main.get_command(app)}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for line in shown.findall(text) + named.findall(text):
            words = line.split()
            path = ()
            for word in words:
                if not hasattr(commands[path], "commands") or word == "[OPTIONS]":
                    break
                path = (*path, word)
                commands.setdefault(path, commands[path[:-1]].get_command(None, word))
                assert commands[path] is not None, f"{page.name}: pfdl {line}"
            known = {"--help"}
            for parameter in commands[path].params:
                known.update(parameter.opts, parameter.secondary_opts)
            options = [word for word in words if re.match("--?[a-zA-Z]", word)]
            unknown = {option.partition("=")[0] for option in options} - known
            assert not unknown, f"{page.name}: pfdl {line}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("study colored-mnist --rows magic", "the row is 'magic'"),
        ("study colored-mnist --select best", "select"),
        ("study colored-mnist --precision 16", "precision"),
        ("study no-such-folder", "there is no folder no-such-folder"),
        ("study no-such-folder --features lite0", "a study reads pixels"),
        ("study a/shapes b/shapes", "two data sets have the same name"),
        ("reproduce colored-mnist --mnist nowhere", "nowhere has no file train-images-idx3-ubyte"),
        ("reproduce colored-mnist --device abacus", "the device 'abacus' is not available"),
        ("reproduce colored-mnist --rows magic", "the row is 'magic'"),
    ],
)
def test_a_mistake_is_a_sentence_before_anything_is_written(line, message, tmp_path):
    assert message in typed(f"{line} -o {tmp_path / 'out'}", fails=True).stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("number", "name"), [("table1", "mmads"), ("Table-II", "nico"), ("table3", "colored-mnist")]
)
def test_a_table_asked_for_by_its_number_is_named(number, name):
    answer = CliRunner().invoke(app, ["reproduce", number])
    assert answer.exit_code == 2
    assert f"{number} of the paper is 'pfdl reproduce {name}'." in answer.stderr
