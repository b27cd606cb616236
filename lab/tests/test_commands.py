"""The laboratory's commands are loaded when they are asked for."""

import subprocess
import sys

LOADED = "import sys; print(*(name for name in sys.modules if name.partition('.')[0] == 'pfdl_lab'))"


def loaded_by(*arguments):
    """Run a command in a process of its own; return which of the laboratory's modules it has imported."""
    code = f"from pfdl.cli.main import app; app({list(arguments)}, standalone_mode=False); {LOADED}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1].split()


def test_a_command_of_the_library_loads_nothing_of_the_laboratory():
    assert loaded_by("train", "--help") == []
    assert "pfdl_lab.cli.study" not in loaded_by("report", "--help")
    assert "pfdl_lab.cli.study" in loaded_by("--help")
