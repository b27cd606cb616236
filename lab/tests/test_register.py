"""The register: every declared test, computed again from the records by other means."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from lab.tests.report.made_up import EVIDENCE, needs_evidence, write_config
from scipy import stats

from pfdl.runs import read_run
from pfdl_lab.mmads.paper import CELLS, PAPER
from pfdl_lab.pairing import holm
from pfdl_lab.register import declared_tests, figures_of, make_register, write_register
from pfdl_lab.report.reading import Columns, read_results

RATIOS = ("1:5", "1:3", "1:1", "2:1", "3:1", "4:1", "5:1")
FAMILY = {
    "name": "early",
    "declared": "2026-01-01 10:00",
    "commit": "abc",
    "pairs": ["pfdl - erm", "level - erm"],
    "data": ["pacs"],
    "endpoints": ["early", "last"],
    "tests": ["1:5", "mean of the seven ratios", "1:5 less 5:1"],
    "seeds": [0, 5],
    "primary": {"pfdl - erm, early, 1:5": "Does it help?"},
}


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    gains = {"erm": 0.0, "pfdl": 5.0, "level": 0.1}
    epochs = (*map(str, range(5, 161, 5)), "last")
    frame = pd.DataFrame(
        product(["pacs"], ["resnet50"], gains, range(8), epochs, RATIOS),
        columns=["data", "backbone", "row", "seed", "epoch", "test"],
    )
    value = 50 + frame["seed"] + frame["row"].map(gains) + rng.normal(size=len(frame))
    return frame.assign(value=value)


@pytest.fixture
def study(tmp_path, results):
    folder = write_config(tmp_path / "study", "images", {})
    results.to_csv(folder / "results.csv.gz", index=False)
    (folder / "families.json").write_text(json.dumps([FAMILY]), encoding="utf-8")
    return folder


def by_loops(results, row, seed, epochs, test):
    """Average by loops over epochs and ratios; a difference of two tests is one of two averages."""
    if " less " in test:
        first, second = test.split(" less ")
        averages = [by_loops(results, row, seed, epochs, one) for one in (first, second)]
        return averages[0] - averages[1]
    wanted = RATIOS if test.startswith("mean") else (test,)
    mine = results[(results["row"] == row) & (results["seed"] == seed)]
    values = []
    for epoch in epochs:
        for one in wanted:
            values.append(mine[(mine["epoch"] == epoch) & (mine["test"] == one)]["value"].item())
    return sum(values) / len(values)


def test_declared_tests_are_paired_over_the_declared_seeds(study, results):
    tests = declared_tests(study)
    assert len(tests) == 2 * 2 * 3
    epochs = {"early": [str(epoch) for epoch in range(5, 41, 5)], "last": ["last"]}
    for line in tests.itertuples():
        row, rival = line.comparison.split(" - ")
        at = (epochs[line.endpoint], line.test)
        ours = np.array([by_loops(results, row, seed, *at) for seed in range(6)])
        theirs = np.array([by_loops(results, rival, seed, *at) for seed in range(6)])
        naive = stats.ttest_rel(ours, theirs)
        ends = naive.confidence_interval()
        assert (line.mean, line.p) == pytest.approx(((ours - theirs).mean(), naive.pvalue))
        assert (line.low, line.high) == pytest.approx((ends.low, ends.high))
        assert line.seeds_run == 6
    assert tests["p_holm"].tolist() == pytest.approx(holm(tests["p"].tolist()))
    named = tests[tests["primary"] != ""]
    assert named[["comparison", "endpoint", "test"]].to_numpy().tolist() == [
        ["pfdl - erm", "early", "1:5"]
    ]


def test_a_test_without_records_stays_in_the_register(study):
    lost = {**FAMILY, "data": ["lost"], "primary": {}}
    (study / "families.json").write_text(json.dumps([lost]), encoding="utf-8")
    tests = declared_tests(study)
    assert (tests["seeds_run"] == 0).all()
    assert tests["p_holm"].isna().all()


def test_a_primary_test_that_was_not_declared_is_refused(study):
    wrong = {**FAMILY, "primary": {"pfdl - erm, chosen, 1:5": "Does it?"}}
    (study / "families.json").write_text(json.dumps([wrong]), encoding="utf-8")
    with pytest.raises(ValueError, match="has no test 'pfdl - erm, chosen, 1:5'"):
        declared_tests(study)


def test_a_study_may_bring_tests_that_it_measured_itself(study):
    own = pd.DataFrame(
        {
            "family": ["own", "own"],
            "comparison": ["a - b", "c - d"],
            "endpoint": ["recall", "recall"],
            "mean": [1.0, 2.0],
            "standard_error": [0.5, 0.25],
            "low": [0.0, 1.5],
            "high": [2.0, 2.5],
            "p": [0.03, 0.02],
        }
    )
    own.to_csv(study / "tests.csv", index=False)
    tests = make_register(study.parent).set_index("comparison")
    assert tests.loc[["a - b", "c - d"], "p_holm"].tolist() == [0.04, 0.04]
    assert "+2.00 ± 0.25" in set(figures_of(study.parent, "study/c - d/recall"))
    path = write_register(study.parent)
    assert len(pd.read_csv(path)) == 2 + 12


def test_figures_for_marks_are_means_differences_and_counts(study, results):
    means = results[results["epoch"] == "last"].query("test == '1:5'")
    means = means.pivot_table(index="seed", columns="row", values="value")
    gain = means["pfdl"] - means["erm"]
    written = set(figures_of(study.parent, "study/pacs/pfdl,erm/last/1:5"))
    assert f"+{gain.mean():.1f} ± {gain.sem():.1f}" in written
    assert f"{(gain > 0).sum()} of 8" in written
    some = set(figures_of(study.parent, "study/pacs/erm/last/1:5/2-4"))
    assert f"{means['erm'][2:5].mean():.2f}" in some


def test_the_register_is_what_the_records_say(tmp_path):
    needs_evidence()
    made = make_register(EVIDENCE)
    made.to_csv(tmp_path / "declared.csv", index=False, float_format="%.5g")
    again, kept = (pd.read_csv(folder / "declared.csv") for folder in (tmp_path, EVIDENCE))
    pd.testing.assert_frame_equal(again, kept, rtol=1e-3, atol=1e-6)


def test_every_study_is_a_run_that_can_be_read():
    needs_evidence()
    for folder in (path for path in EVIDENCE.iterdir() if path.is_dir()):
        problems = []
        results = read_results(read_run(folder), Columns(), problems)
        assert (len(results) > 0, problems) == (True, []), folder


def test_every_primary_test_is_a_question_of_its_own():
    needs_evidence()
    questions = pd.read_csv(EVIDENCE / "declared.csv")["primary"].dropna()
    assert questions.is_unique
    assert len(questions) >= 8


def test_the_settings_of_sgd_are_those_that_validation_chooses():
    """The one family whose rows were not known when it was declared."""
    needs_evidence()
    records = pd.read_csv(EVIDENCE / "budgets" / "results.csv.gz", low_memory=False)
    chosen = records[
        (records["data"] == "pacs-40-epochs-sgd")
        & (records["epoch"] == "chosen")
        & (records["test"] == "validation")
    ]
    means = chosen.groupby("row")["value"].mean()
    best = [means[means.index.str.startswith(f"{name}-wd")].idxmax() for name in ("erm", "pfdl")]
    assert best == ["erm-wd-0.001-lr-0.01", "pfdl-wd-0.0005-lr-0.01"]


def test_the_closest_reading_of_pfdls_row_is_as_far_off_as_the_page_says():
    needs_evidence()
    records = pd.read_csv(EVIDENCE / "readings" / "results.csv.gz", low_memory=False)
    keys = ["sees", "width", "optimizer", "batches", "standardised", "use", "estimator"]
    metrics = list(PAPER["PFDL"])
    far = {}
    for key, lines in records[records["sees"] != "nothing"].groupby(keys):
        distances = []
        for number, cell in enumerate(CELLS):
            mine = lines[(lines[["n", "p", "r"]] == list(cell)).all(axis=1)]
            for metric in metrics:
                printed = PAPER["PFDL"][metric][number]
                distances.append(abs(mine[metric].mean() - printed) / printed)
        far[key] = np.mean(distances)
    assert len(far) == 1596
    assert min(far.values()) == pytest.approx(0.257, abs=5e-4)
