"""What ``import pfdl`` gives, and what it leaves for later."""

import re
import runpy
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import pfdl

ROOT = Path(__file__).parents[1]


def modules_after(statement):
    """Return what is imported after a statement in a process of its own, modules and the packages
    they are in.
    """
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "statement",
    [
        "import pfdl, pfdl.vision.config",
        "import pfdl.cli.main; pfdl.cli.main.app(['train', '--help'], standalone_mode=False)",
    ],
)
@pytest.mark.usefixtures("children_uncounted")
def test_names_and_help_do_not_wait_for_pytorch(statement):
    slow = {"torch", "sklearn", "pandas", "numpy", "scipy", "matplotlib", "lightning"}
    assert not modules_after(statement) & slow


@pytest.mark.parametrize("package", [pfdl, pfdl.vision])
def test_every_public_name_is_there_when_asked_for(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    assert pfdl.tabular.PFDLRegressor
    assert pfdl.__getattr__("runs").claim
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_a_module_does_not_take_the_place_of_a_function():
    for package in (pfdl, pfdl.data, pfdl.tabular, pfdl.vision):
        for name in set(package.__all__) - {"__version__"}:
            # The one module among them
            assert callable(getattr(package, name)) or name == "functional"
            assert f"{package.__name__}.{name}" not in sys.modules


def test_the_version_is_that_of_the_distribution():
    assert version("pfdl") == pfdl.__version__


def test_no_test_or_example_of_the_library_needs_the_laboratory():
    houses = {"pfdl_lab", "lab", *(path.stem for path in (ROOT / "lab" / "pages").glob("*.py"))}
    imported = re.compile(r"""^\s*(?:from|import) (\w+)|import_module\("(\w+)""", re.MULTILINE)
    for path in (*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").glob("*.py")):
        names = {one or other for one, other in imported.findall(path.read_text(encoding="utf-8"))}
        assert not names & houses, path


def test_readme_needs_no_file_beside_it_on_a_package_index():
    portable = runpy.run_path(str(ROOT / "setup.py"))["portable"]
    readme = (ROOT / "README.md").read_text()
    relative = re.compile(r"\]\((?!https?://)")
    assert relative.search(readme)
    assert not relative.search(portable(readme))
    linked = portable(readme, "https://example.org/pfdl/blob/main/")
    assert not relative.search(linked)
    assert "](https://example.org/pfdl/blob/main/CONTRIBUTING.md)" in linked
