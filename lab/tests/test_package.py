from importlib.metadata import version

import pfdl


def test_both_distributions_have_one_version():
    assert version("pfdl") == version("pfdl-lab") == pfdl.__version__
