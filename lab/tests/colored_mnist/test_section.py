"""What is chosen, and what the page says."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from lab.tests.colored_mnist.test_run import with_steps
from lab.tests.report.made_up import copy_published
from tests.cli.typing_commands import typed

from pfdl_lab.colored_mnist import run as colored_mnist
from pfdl_lab.colored_mnist.rows import ROWS, candidates
from pfdl_lab.colored_mnist.run import WORST_GROUP
from pfdl_lab.colored_mnist.section import choose_by_worst_group
from pfdl_lab.reporting import write_tables


def test_the_worst_group_chooses_row_and_step_for_each_restart():
    first, second = candidates("balance-inferred")
    table = [(first, 0, 20, 50.0), (first, 0, 40, 60.0), (second, 0, 20, 60.0)]
    table += [(first, 1, 20, 55.0), (second, 1, 40, 58.0), ("erm", 1, 40, 99.0)]
    results = pd.DataFrame(table, columns=["row", "restart", "step", WORST_GROUP])
    chosen = choose_by_worst_group(results, (first, second))
    assert chosen[["row", "step"]].to_numpy().tolist() == [[first, 40], [second, 40]]


def test_a_quick_run_on_other_digits_is_called_so(tmp_path):
    quick = {"digits": "scikit-learn's digits (not MNIST)", "max_train": 100, "max_hidden": 8}
    copy_published(
        "colored-mnist",
        tmp_path,
        "restart < 2",
        **quick,
        command="pfdl reproduce colored-mnist --quick",
    )
    _, files = write_tables(tmp_path, pd.read_csv(tmp_path / "results.csv"))
    assert {path.name for path in files} | {"config.json"} == {
        path.name for path in tmp_path.iterdir()
    }
    for words in (
        "`pfdl reproduce colored-mnist --quick`",
        "are not MNIST",
        "A quick run, not the published protocol",
    ):
        assert words in (tmp_path / "table.md").read_text()


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A quick run of the command: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("quick")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PFDL_MNIST", raising=False)
        patch.setattr(colored_mnist, "ROWS", with_steps(ROWS, 2))
        patch.setattr(sys, "argv", ["pfdl", "reproduce", "colored-mnist", "--quick"])
        line = "reproduce colored-mnist --quick --restarts 2 --jobs 1 --device cpu"
        return folder, typed(f"{line} -o {folder}")


def test_the_command_says_that_the_digits_are_not_mnist(quick):
    _, result = quick
    assert "Digits: scikit-learn's digits (not MNIST)" in result.stderr
    assert "Note: These digits are not MNIST: published figures" in result.stdout


def test_the_command_names_its_files(quick):
    folder, result = quick
    named = [Path(line) for line in result.stdout.splitlines() if line.startswith(f"{folder}/")]
    assert named == [folder / "results.csv", folder / "table.md"]
    assert all(path.stat().st_size > 0 for path in named)
    assert not list((folder / "cells").glob("*.json"))  # one file keeps them all


def test_the_command_trains_every_row_from_every_restart(quick):
    results = pd.read_csv(quick[0] / "results.csv")
    assert results["row"].unique().tolist() == list(ROWS)
    assert (results.groupby("row")["restart"].apply(list).map(tuple) == (0, 1)).all()
    assert (results["step"] == 1).all()
    assert results.filter(like="accuracy").stack().between(0, 100).all()
