import json

import pandas as pd
import pytest

from pfdl.runs import read_run
from pfdl_lab import reporting, spuco_mnist
from pfdl_lab.colored_mnist import section as colored_mnist
from pfdl_lab.mmads import section as mmads
from pfdl_lab.mmads.run import FIGURE_CELL
from pfdl_lab.report import trainings
from pfdl_lab.report.blocks import Missing, Number, Plot, Table, Text
from pfdl_lab.report.reading import read_results

from .made_up import MADE_WITH, copy_published, make_training, write_config


def build(section, folder):
    problems = []
    run = read_run(folder)
    built = section.build(run, read_results(run, section.COLUMNS, problems))
    assert problems == []
    return built


def tables_of(section):
    return {block.caption: block for block in section.blocks if isinstance(block, Table)}


def plots_of(section):
    return {block.title: block for block in section.blocks if isinstance(block, Plot)}


def row_of(table, header, skip=0):
    return [row for row in table.rows if row.header == header][skip].cells


def warnings_of(section):
    return [
        block.text
        for block in section.blocks
        if isinstance(block, Text) and block.tone == "warning"
    ]


def test_an_unfinished_mmads_stands_beside_the_paper_with_what_is_done(tmp_path):
    done = "setting == 'independent' and n == 2000 and p == 20 and r == 1.7 and seed < 102"
    copy_published("mmads", tmp_path, done, cells=[FIGURE_CELL], settings=["independent"], seeds=4)
    section = build(mmads, tmp_path)
    errors = tables_of(section)["AE, S ⊥ V (independent)"]
    assert errors.columns == ["n=2000 p=20 r=1.7"]  # what was not run has no column
    results = (
        pd.read_csv(tmp_path / "results.csv").set_index(["method", "metric"]).sort_index()["value"]
    )
    ols = results["OLS", "ae"]
    assert row_of(errors, "OLS")[0] == Number(
        pytest.approx(ols.mean()), pytest.approx(ols.sem()), 3
    )
    headers = [row.header for row in errors.rows]
    assert headers[headers.index("PFDL") + 1] == "in the paper"
    # Ours is not the paper's
    assert headers[headers.index("Screened OLS") + 1] == "OLS on S (oracle)"


def test_colored_digits_show_what_is_no_longer_trained(tmp_path):
    copy_published("colored-mnist", tmp_path, "row in ['erm', 'irm']", rows=["erm", "irm", "vrex"])
    results = pd.read_csv(tmp_path / "results.csv")
    older = results[results["row"] == "irm"].assign(row="irm-pfdl-sgd")
    pd.concat([results, older]).to_csv(tmp_path / "results.csv", index=False)
    section = build(colored_mnist, tmp_path)
    extras = next(
        table
        for caption, table in tables_of(section).items()
        if caption.startswith("Also measured")
    )
    assert [row.header for row in extras.rows] == ["irm-pfdl-sgd"]


def test_an_unfinished_run_shows_what_it_has_and_says_so(tmp_path):
    empty = write_config(tmp_path / "empty", "colored-mnist", {"digits": "MNIST"})
    started = write_config(tmp_path / "started", "spuco-mnist", {})
    (started / "cells").mkdir()
    row = {"row": "erm", **dict.fromkeys(spuco_mnist.MEASURES, 50.0)}
    for seed in (1, 2):
        task = {"magnitude": "large", "seed": seed}
        (started / "cells" / f"{seed}.json").write_text(json.dumps({"task": task, "rows": [row]}))
    nothing, some, _ = reporting.build_sections([read_run(empty), read_run(started)], [])
    assert warnings_of(nothing) == ["No finished results yet."]
    (warning,) = warnings_of(some)
    assert warning.startswith("Unfinished: 2 more tasks are done")
    (table,) = tables_of(some).values()
    assert row_of(table, "erm")[:2] == ("2", Number(50.0, 0.0))


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The section of a training that is tested, one that is not, and one that has just begun."""
    folder = tmp_path_factory.mktemp("compared")
    tested = make_training(folder / "a" / "same")
    (tested / "manifest.json").write_text('{"ratio": "5:1"}')
    untested = make_training(folder / "b" / "same", objective="erm", epochs=1, evaluated=False)
    (untested / "manifest.json").write_text('{"ratio": null}')
    settings = {"epochs": 9, "patience": 2, "sampler": "groups"}
    fresh = write_config(folder / "fresh", "training", {"training": settings})
    problems = []
    section = trainings.build([read_run(one) for one in (tested, untested, fresh)], problems)
    assert problems == []
    return section


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "a/same",
            {
                "best validation (%)": Number(30.0),
                "test (%)": Number(45.0),
                "worst group, test (%)": Number(10.0),
                "sampler": "shuffle",
                "ratio": "5:1",
            },
        ),
        (
            "b/same",
            {
                "epochs": "1 of 3",
                "test (%)": Missing("not tested"),
                "sampler": "shuffle",
                "ratio": "natural",
            },
        ),
        (
            "fresh",
            {
                "epochs": "0 of at most 9",
                "best validation (%)": Missing("no epoch finished yet"),
                "sampler": "groups",
                "ratio": "?",
            },
        ),
    ],
)
def test_trainings_are_compared_in_one_table(compared, name, expected):
    overview = tables_of(compared)["Trainings"]
    cells = dict(zip(overview.columns, row_of(overview, name), strict=True))
    assert {column: cells[column] for column in expected} == expected
    assert len(overview.rows) == 3


def test_what_was_tested_is_told_of_trainings_that_were(compared):
    tested = tables_of(compared)["Accuracies in percent on 80 images (test)"]
    assert [row.header for row in tested.rows] == ["a/same"]
    known = ["all images", "worst group", "mean over groups", "calibration error"]
    assert tested.columns == known
    assert row_of(tested, "a/same")[:2] == (Number(45.0), Number(10.0))
    assert len(tables_of(compared)["Accuracy in percent by context"].rows) == 1


def test_the_curves_are_those_of_the_logged_epochs(compared):
    curves = plots_of(compared)["R² of g: how much of each feature the others predict"].table
    assert [cell.value for cell in curves.rows[0].cells] == [0.1, 0.2, 0.3]


def test_evaluations_on_different_images_stand_in_different_tables(tmp_path):
    folders = [
        make_training(tmp_path / name, contexts=(), images=images)
        for name, images in ("ax", "by", "cx")
    ]
    section = trainings.build([read_run(folder) for folder in folders], [])
    assert tables_of(section)["Trainings"].columns[-1] == "worst class, test (%)"
    headers = []
    for block in section.blocks:
        if isinstance(block, Table) and "on 80 images" in block.caption:
            headers.append([row.header for row in block.rows])
    assert headers == [["a", "c"], ["b"]]


def test_a_kind_without_a_section_shows_its_results_as_they_stand(tmp_path):
    run = read_run(write_config(tmp_path, "something-new", {}))
    assert warnings_of(reporting.build_sections([run], [])[0]) == ["No finished results yet."]
    (tmp_path / "results.csv").write_text("name,user_attrs_value\n" + "<b>,66.66666567\n" * 300)
    (tmp_path / "chosen.json").write_text('{"candidate": "b"}')
    chosen, table = reporting.build_sections([run], [])[0].blocks
    assert chosen == Text("Chosen: b.")
    assert (len(table.rows), *table.columns) == (reporting.MAX_ROWS, "value")
    assert (table.rows[0].header, table.rows[0].cells) == ("<b>", ("66.6667",))


def test_how_a_run_was_made(tmp_path):
    run = read_run(write_config(tmp_path, "something-new", {"restarts": 2, "seed": 4}))
    made_with, settings = (
        json.loads(one.text) for one in reporting.build_sections([run], [])[-1].blocks[1:]
    )
    assert settings == {"restarts": 2, "seed": 4}
    assert made_with == MADE_WITH


def test_trainings_say_what_contexts_were_inferred_and_why(tmp_path):
    for name in ("plain", "balanced", "torn"):
        make_training(tmp_path / name)
    (tmp_path / "balanced" / "contexts.json").write_text(
        json.dumps({"sentence": "Found 2 contexts, because."})
    )
    (tmp_path / "torn" / "contexts.json").write_text("[]")
    problems = []
    section = trainings.build(
        [read_run(tmp_path / name) for name in ("plain", "balanced", "torn")], problems
    )
    texts = [block.text for block in section.blocks if isinstance(block, Text)]
    assert "Contexts of balanced. Found 2 contexts, because." in texts
    assert not any("Contexts of plain" in text for text in texts)
    assert [
        problem for problem in problems if "torn/contexts.json was left out" in problem
    ] == problems
    assert len(problems) == 1
