"""Every study goes one way: its run returns a table, a section takes it, and what is left is that
table.
"""

import pandas as pd
import pytest
from lab.tests.colored_mnist.test_run import TINY as FEW_DIGITS, with_steps
from lab.tests.images.conftest import tiny  # noqa: F401, a fixture

from pfdl.runs import read_run
from pfdl_lab import readout, spuco_mnist
from pfdl_lab.colored_mnist import run as colored_mnist
from pfdl_lab.grid import PACK
from pfdl_lab.images import run as images
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.leaks import run as leaks
from pfdl_lab.mmads import run as mmads
from pfdl_lab.report import reading
from pfdl_lab.report.reading import read_results
from pfdl_lab.reporting import SECTIONS, write_tables


@pytest.fixture
def studies(monkeypatch, tiny):  # noqa: F811
    """A small run of every kind."""
    rows = ("erm", "balance-inferred-l2-0.0011")
    monkeypatch.setattr(colored_mnist, "ROWS", with_steps(colored_mnist.ROWS, 2))
    monkeypatch.setattr(spuco_mnist, "EPOCHS", 3)
    monkeypatch.setattr(leaks, "read_tables", lambda kind, half: iter(()))
    line = dict.fromkeys(readout.COLUMNS.numbers, 50.0)
    monkeypatch.setattr(readout, "run_task", lambda seed, **_: [{**line, "seed": seed}])
    monkeypatch.setattr(readout, "store_images", lambda *_: None)
    monkeypatch.setattr(readout, "write_features", lambda place: None)
    tables = mmads.MMADSConfig(mmads.QUICK.cells[:1], ("independent",), 1, 1, 100)
    some_digits = spuco_mnist.SpuCoConfig(("large",), ("erm",), seeds=1, images=200)
    small = ImagesConfig(
        ("erm", "sampler"), seeds=1, epochs=1, backbone="mlp", image_size=8, batch_size=16
    )
    return {
        "mmads": lambda place: mmads.run(tables, place),
        "colored-mnist": lambda place: colored_mnist.run(
            colored_mnist.replace(FEW_DIGITS, rows=rows), place, folder=None
        ),
        "images": lambda place: images.run(small, [tiny], place),
        "readout": lambda place: readout.run(tiny, place, seeds=2, first_seed=0),
        "spuco-mnist": lambda place: spuco_mnist.run(some_digits, place, folder=None),
        "leaks": lambda place: leaks.run(leaks.LeaksConfig(drawn=1, slow=False), place),
    }


def refuse_results(source, *rest, read=pd.read_csv, **how):
    assert "results" not in str(source), "what this process has made is read back"
    return read(source, *rest, **how)


def refuse(*_, **__):
    raise AssertionError("what this process has made is read back")


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_run_returns_its_table_which_a_section_takes(kind, studies, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(pd, "read_csv", refuse_results)
        patch.setattr(reading, "read_table", refuse)
        results = studies[kind](tmp_path)
        section, files = write_tables(tmp_path, results)
    assert section.title == SECTIONS[kind].TITLE
    assert section.blocks
    assert [path.name for path in files[:2]] == ["results.csv", "table.md"]
    names = {path.name for path in tmp_path.rglob("*.json*")}
    assert names == {"config.json", PACK}  # no file of a single task
    problems = []
    stored = read_results(read_run(tmp_path), SECTIONS[kind].COLUMNS, problems)
    assert (len(stored), problems) == (len(results), [])
    again, _ = write_tables(tmp_path, stored)
    assert [type(block) for block in again.blocks] == [type(block) for block in section.blocks]
