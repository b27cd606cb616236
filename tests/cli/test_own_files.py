"""Objectives and backbones of a user's own, from a file that --import or PFDL_IMPORT names."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pfdl.cli.main import main
from tests.cli.typing_commands import draw_all
from tests.processes import Forked

OWN = """
import pfdl
from pfdl.objectives.penalties import Penalty
from torch import nn


class Size(Penalty):
    '''Penalise the mean squared feature.'''

    def forward(self, features):
        return features.square().mean()


def tiny(classes, size):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * size**2, 8), nn.ReLU(), nn.Linear(8, classes))


pfdl.register_objective("size", Size)
pfdl.register_backbone("tiny", tiny)
"""


def run_in_folder():
    """Run pfdl with the arguments that follow the name of a folder, in that folder."""
    os.chdir(sys.argv.pop(1))
    try:
        main()
    finally:
        Path("inherited").write_text(os.environ.get("PFDL_IMPORT", ""))


@pytest.fixture
def pfdl(tmp_path):
    """Run pfdl in a process of its own, in an empty folder with the file."""
    (tmp_path / "own.py").write_text(OWN)

    def run(*arguments, **variables):
        process = Forked(run_in_folder, tmp_path, *arguments, **variables)
        return SimpleNamespace(
            returncode=process.finish(), stdout=process.stdout, stderr=process.stderr
        )

    return run


def test_what_a_file_registers_is_trained_and_loaded_again(pfdl, tmp_path):
    draw_all(tmp_path / "photos")
    small = ["--image-size", "8", "--epochs", "1", "--device", "cpu", "--no-export", "-o", "run"]
    own = ["--backbone", "tiny", "--objective", "size+pfdl", "--import", "own.py"]
    trained = pfdl("train", "photos", *own, *small)
    assert trained.returncode == 0, trained.stderr
    assert "tiny, objective size+pfdl, contexts hidden, " in trained.stderr.splitlines()[0]
    refused = pfdl("evaluate", "run", "photos", "--device", "cpu")
    assert refused.returncode == 2
    assert "--import FILE.py brings one of your own" in refused.stderr
    tested = pfdl(
        "evaluate", "run", "photos", "--device", "cpu", PFDL_IMPORT=str(tmp_path / "own.py")
    )
    assert tested.returncode == 0, tested.stderr


def test_what_a_file_registers_is_listed_here_and_in_processes_that_are_started(pfdl, tmp_path):
    assert pfdl("list", "backbones", "tin*", "--import", "own.py").stdout == "tiny\n"
    assert (tmp_path / "inherited").read_text() == str(tmp_path / "own.py")
    assert (
        "size Penalise the mean squared feature."
        in pfdl("list", "objectives", "size", PFDL_IMPORT="own.py").stdout
    )


def test_a_file_that_cannot_be_imported_is_a_sentence(pfdl, tmp_path):
    (tmp_path / "wrong.py").write_text("import pfdl\npfdl.register_backbone('resnet18', print)\n")
    taken = pfdl("list", "backbones", "--import", "wrong.py")
    assert taken.returncode == 2
    assert (
        taken.stderr
        == "Error: wrong.py, line 2, cannot be imported: ValueError: there is a backbone 'resnet18'"
        " already; choose another name.\n"
    )
    assert (
        "there is no Python file none.py to import"
        in pfdl("list", "backbones", "--import", "none.py").stderr
    )


def test_a_file_that_ends_the_process_does_not_end_the_command(pfdl, tmp_path):
    (tmp_path / "script.py").write_text("import sys\n\nsys.exit(0)\n")
    ended = pfdl("list", "backbones", "--import", "script.py")
    assert ended.returncode == 2
    assert ended.stderr == "Error: script.py, line 3, cannot be imported: SystemExit: 0\n"
