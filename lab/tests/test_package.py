from importlib.metadata import version

import pytest

import pfdl
from tests.test_package import modules_after


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
