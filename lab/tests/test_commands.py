"""The laboratory beside the library: one version, and commands that are loaded when they are asked for."""

from importlib.metadata import version

import pytest
from tests.cli.typing_commands import typed
from tests.test_package import modules_after

import pfdl


def test_both_distributions_have_one_version():
    assert version("pfdl") == version("pfdl-lab") == pfdl.__version__


@pytest.mark.usefixtures("children_uncounted")
@pytest.mark.parametrize(
    ("arguments", "is_loaded"), [("'train', '--help'", False), ("'report', '--help'", False), ("'--help'", True)]
)
def test_the_laboratorys_commands_are_loaded_when_they_are_asked_for(arguments, is_loaded):
    loaded = modules_after(f"from pfdl.cli.main import app; app([{arguments}], standalone_mode=False)")
    assert ("pfdl_lab.cli.study" in loaded) == is_loaded
    assert not any(name.startswith("pfdl_lab") for name in loaded) or "train" not in arguments


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("study colored-mnist --rows magic", "the row is 'magic'"),
        ("study colored-mnist --select best", "select"),
        ("study colored-mnist --precision 16", "precision"),
        ("study no-such-folder", "there is no folder no-such-folder"),
        ("study a/shapes b/shapes", "two data sets have the same name"),
        ("reproduce colored-mnist --mnist nowhere", "nowhere has no file train-images-idx3-ubyte"),
        ("reproduce colored-mnist --device abacus", "the device 'abacus' is not available"),
        ("reproduce colored-mnist --rows magic", "the row is 'magic'"),
    ],
)
def test_a_mistake_is_a_sentence_before_anything_is_written(line, message, tmp_path):
    assert message in typed(f"{line} -o {tmp_path / 'out'}", fails=True).stderr
    assert not (tmp_path / "out").exists()
