"""The benchmark of leaks in tables: its laws, its tables, and a run of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lab.tests.report.made_up import EVIDENCE, needs_evidence
from scipy import stats

from pfdl.runs import read_run
from pfdl_lab.leaks import rivals, run as experiment, section
from pfdl_lab.leaks.factors import STRUCTURES, draw_table, drawn_names
from pfdl_lab.leaks.laws import EXACT, LAWS, STRENGTHS, label_scores, leak
from pfdl_lab.leaks.run import LeaksConfig, judge
from pfdl_lab.leaks.tables import RealTable, half_of, prepare
from pfdl_lab.report.reading import read_results


@pytest.fixture(scope="module")
def table() -> RealTable:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4)) + 0.5 * rng.standard_normal((3000, 1))
    y = X @ [1.0, -1.0, 0.5, 1.0] + rng.standard_normal(3000)
    frame = pd.DataFrame(X, columns=list("abcd"))
    return RealTable("made", "here", "number", half_of("here"), frame, pd.Series(y, name="y"))


SAME_SCALE = ("consequence", "noisy copy", "selected, paper's law", "selected, band")


@pytest.mark.parametrize("r", STRENGTHS)
@pytest.mark.parametrize("law", [*SAME_SCALE, "selected by a third variable"])
def test_a_leak_correlates_with_the_label_as_strongly_as_it_says(law, r, table):
    made = leak(table.X, table.y, law, r, [0])
    assert made is not None
    z = label_scores(table.y, np.random.default_rng(0))[made.rows]
    assert np.corrcoef(made.X["LEAK"][made.rows], z)[0, 1] == pytest.approx(r, abs=0.06)
    assert made.rows.all() == (not law.startswith("selected"))


def test_exact_laws_are_exact(table):
    copy = leak(table.X, table.y, "copy by rank", 1.0, [0])
    assert copy.X["LEAK"].corr(table.y, method="spearman") == pytest.approx(1.0)
    both = leak(table.X, table.y, "two columns whose sum is the label", 1.0, [0])
    total = both.X[both.columns].sum(axis=1)
    assert total.corr(table.y) == pytest.approx(1.0)
    assert set(EXACT) < set(LAWS)


def test_a_group_mean_is_one_of_five_labels_and_a_binary_leak_has_two_values(table):
    means = leak(table.X, table.y, "group mean", 0.75, [0]).X["LEAK"]
    assert means.nunique() == 600
    assert leak(table.X, table.y, "binary", 0.75, [0]).X["LEAK"].nunique() == 2


def test_prepare_takes_the_target_its_kind_asks_for():
    rng = np.random.default_rng(0)
    raw = pd.DataFrame(
        {
            "id": np.arange(300),
            "sex": rng.choice(["f", "m"], 300),
            "size": rng.standard_normal(300),
            "weight": rng.standard_normal(300),
            "grade": rng.integers(0, 5, 300),
            "girth": rng.standard_normal(300),
            "rare": [np.nan] * 100 + [1.0] * 200,
            "words": [f"word {j}" for j in range(300)],
        }
    )
    X, y = prepare(raw, "number")
    assert (list(X), y.name) == (["sex=m", "weight", "grade", "girth"], "size")
    assert prepare(raw, "number", place=2)[1].name == "girth"
    assert prepare(raw, "number", place=5) is None
    X, y = prepare(raw, "class")
    assert (list(X), y.name) == (["size", "weight", "grade", "girth"], "sex")
    assert prepare(raw, "class", target="grade")[1].name == "grade"


@pytest.mark.parametrize("kind", ["number", "class"])
def test_drawn_tables_are_the_same_again_and_differ_between_halves(kind):
    names = drawn_names(5)
    assert [name.removeprefix("drawn/") for name in names] == [
        f"{structure} {number}" for number, structure in enumerate([*STRUCTURES, "one factor"])
    ]
    for name in names[:4]:
        table, again = (draw_table(kind, "design", name) for _ in range(2))
        assert (table.name, table.kind) == (name, kind)
        assert table.X.equals(again.X)
        assert not table.X.equals(draw_table(kind, "report", name).X)


@pytest.mark.parametrize("number", [True, False])
def test_every_rival_gives_a_copy_of_the_label_the_highest_score(number, table):
    y = table.y if number else (table.y > 0).map({True: "yes", False: "no"})
    copy = table.y if number else (table.y > 0).astype(float)
    X = table.X.assign(copy=copy)
    for name, score in rivals.scores(X, y, slow=True).items():
        assert np.argmax(score) == 4, name


def test_a_table_is_judged_and_the_records_are_summed_up(table):
    lines = pd.DataFrame(judge(table, slow=False)).assign(item=table.name, kind="number")
    records = section.split(lines)
    untouched, injected, costs = records
    assert untouched["dropped"].tolist() == [""]
    assert set(injected["law"]) == set(LAWS)
    strong = injected["r"] >= 0.6
    assert injected.loc[(injected["law"] == "consequence") & strong, "dropped"].all()
    assert injected.loc[injected["law"].isin(EXACT), "dropped"].all()
    assert (costs["oracle"] <= costs["all columns"] + 0.02).all()
    recall = section.recall_by_law(records)
    assert recall.loc["numbers, consequence", "found"] == pytest.approx(100.0)
    tests = section.declared_tests(records)
    assert tests["comparison"].tolist() == ["alarms of numbers - 5 %"]
    assert tests["mean"].tolist() == [0.0]
    assert tests["high"].tolist() == [pytest.approx(97.5)]


def test_a_stored_run_says_what_the_run_said(table, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "read_tables", lambda kind, half: iter([table]))
    monkeypatch.setattr(experiment, "open_table", lambda *_: table)
    results = experiment.run(LeaksConfig(drawn=1, slow=False), tmp_path)
    stored = read_results(read_run(tmp_path), section.COLUMNS, [])
    shown, read = (section.build(None, one).blocks for one in (results, stored))
    assert [block.caption for block in shown] == [block.caption for block in read]
    assert [row.header for row in shown[0].rows] == [
        "classes, drawn",
        "classes, real",
        "numbers, drawn",
        "numbers, real",
    ]
    assert [row.cells[:2] for row in shown[1].rows] == [row.cells[:2] for row in read[1].rows]


def made_up_records(found: list[bool], scores: list[float]) -> section.Records:
    """Four tables with one leak each, and four untouched ones of which one is touched."""
    names = [f"table {j}" for j in range(4)]
    untouched = pd.DataFrame({"item": names, "kind": "number", "dropped": ["x", "", "", ""]})
    untouched["|correlation|"] = [0.1, 0.9, 0.5, 0.2]
    injected = pd.DataFrame({"item": names, "kind": "number", "law": "consequence", "r": 0.75})
    injected["dropped"], injected["|correlation|"] = found, scores
    costs = pd.DataFrame({"item": names, "kind": "number", "oracle": 1.0})
    return section.Records(untouched, injected, costs)


def test_a_rival_alarms_as_often_as_the_screen_and_no_more():
    records = made_up_records([True, True, True, False], [0.45, 0.55, 0.95, 0.6])
    difference = section.rival_recall(records, "number")
    # One untouched table may have a higher score: the threshold is 0.5
    assert difference["|correlation|"].tolist() == [1.0, 0.0, 0.0, -1.0]
    shares = section.recall_by_strength(records, "number")
    assert shares.loc[0.75].tolist() == [0.75, 0.75]


def test_declared_tests_are_those_of_scipy():
    found = [True, True, True, False]
    records = made_up_records(found, [0.0] * 4)
    costs = records.costs.assign(screened=[1.0, 1.1, 1.0, 1.2])
    costs["all columns"] = [1.3, 1.2, 1.5, 1.1]
    costs["without the largest |correlation|"] = 1.0
    tests = section.declared_tests(records._replace(costs=costs))
    tests = tests.set_index("comparison")
    recall = tests.loc["recall of numbers - 50 %"]
    expected = stats.ttest_1samp(np.array(found, float), 0.5, alternative="greater")
    assert (recall["mean"], recall["p"]) == (75.0, pytest.approx(expected.pvalue))
    gained = np.log(costs["all columns"] / costs["screened"])
    excess = tests.loc["excess of all columns - screened"]
    assert excess["mean"] == pytest.approx(100 * gained.mean())
    assert excess["p"] == pytest.approx(stats.ttest_1samp(gained, 0, alternative="greater").pvalue)
    alarms = stats.binomtest(1, 4, 0.05, alternative="less")
    assert tests.loc["alarms of numbers - 5 %", "p"] == pytest.approx(alarms.pvalue)


def test_the_register_has_what_the_records_say():
    needs_evidence()
    computed = section.declared_tests(section.read_records(EVIDENCE / "leaks"))
    kept = pd.read_csv(EVIDENCE / "leaks" / "tests.csv")
    assert kept["comparison"].tolist() == computed["comparison"].tolist()
    for name in ("mean", "standard_error", "low", "high", "p", "seeds_run"):
        assert np.allclose(kept[name], computed[name], rtol=1e-3), name
