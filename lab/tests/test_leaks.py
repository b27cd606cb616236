"""The benchmark of leaks in tables: its laws, its tables, and a run of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pfdl_lab.leaks import rivals, summary
from pfdl_lab.leaks.factors import STRUCTURES, draw_tables
from pfdl_lab.leaks.laws import EXACT, LAWS, STRENGTHS, label_scores, leak
from pfdl_lab.leaks.run import judge_table
from pfdl_lab.leaks.tables import RealTable, half_of, prepare


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
    design, report = draw_tables(kind, "design", 4), draw_tables(kind, "report", 4)
    assert [name.item.rsplit(" ", 1)[0] for name in design] == list(STRUCTURES)
    again = draw_tables(kind, "design", 4)
    assert all(one.X.equals(other.X) for one, other in zip(design, again, strict=True))
    assert not design[0].X.equals(report[0].X)


@pytest.mark.parametrize("number", [True, False])
def test_every_rival_gives_a_copy_of_the_label_the_highest_score(number, table):
    y = table.y if number else (table.y > 0).map({True: "yes", False: "no"})
    copy = table.y if number else (table.y > 0).astype(float)
    X = table.X.assign(copy=copy)
    for name, score in rivals.scores(X, y, slow=True).items():
        assert np.argmax(score) == 4, name


def test_a_table_is_judged_and_the_records_are_summed_up(table):
    found = judge_table(table, slow=False)
    untouched, injected, costs = (
        pd.DataFrame(found[name]) for name in ("untouched", "injected", "costs")
    )
    assert untouched["dropped"].tolist() == [""]
    assert set(injected["law"]) == set(LAWS)
    strong = injected["r"] >= 0.6
    assert injected.loc[(injected["law"] == "consequence") & strong, "dropped"].all()
    assert injected.loc[injected["law"].isin(EXACT), "dropped"].all()
    assert (costs["oracle"] <= costs["all columns"] + 0.02).all()
    recall = summary.recall_by_law(injected)
    assert recall.loc[("number", "consequence"), "found"] == pytest.approx(100.0)
    tests = summary.declared_tests(untouched, injected, costs)
    assert set(tests["comparison"]) >= {"alarms, numbers", "recall, numbers"}
    assert tests["Holm"].dropna().between(0, 1).all()
