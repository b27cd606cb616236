"""The declared analysis: endpoints, comparisons, Holm's method over all tests, equivalence."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pfdl_lab.images import phases
from pfdl_lab.images.rows import DECLARED, GRID, PAPER, RATIOS
from pfdl_lab.images.run import COLUMNS
from pfdl_lab.images.tables import measure
from pfdl_lab.pairing import PairedDifference, holm
from pfdl_lab.report.blocks import Plot, Table

EPOCHS = [*map(str, (1, 2, *range(5, 161, 5))), "last", "chosen"]


def frame(lines):
    return pd.DataFrame(lines, columns=list(COLUMNS))


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    gain = {"pfdl": 5.0, "level-matched": 0.05}
    return frame(
        (
            "pacs",
            "resnet50",
            row,
            seed,
            epoch,
            ratio,
            50 + seed + gain.get(row, 0) + rng.normal() / 4,
        )
        for row in DECLARED
        for seed in range(6)
        for epoch in EPOCHS
        for ratio in RATIOS
    )


def naive_endpoint(results, row, seed, when, tests):
    """Average by loops what the page declares."""
    epochs = {
        "early": range(5, 41, 5),
        "all": range(5, 161, 5),
        "last": ["last"],
        "chosen": ["chosen"],
    }[when]
    total = []
    for epoch in epochs:
        for test in tests:
            mine = results[
                (results["row"] == row)
                & (results["seed"] == seed)
                & (results["epoch"] == str(epoch))
            ]
            total.append(mine[mine["test"] == test]["value"].item())
    return sum(total) / len(total)


@pytest.mark.parametrize("when", ["early", "all", "last", "chosen"])
@pytest.mark.parametrize(
    ("test", "ratios"), [("5:1", ["5:1"]), ("mean of the seven ratios", RATIOS)]
)
def test_endpoints_are_means_over_their_epochs(results, when, test, ratios):
    (part,) = measure(results)
    found = phases.phase_by_phase(part).endpoint("pfdl", when, test)
    assert found[3] == pytest.approx(naive_endpoint(results, "pfdl", 3, when, ratios))


def test_a_seed_that_lacks_an_epoch_is_left_out(results):
    (part,) = measure(results[~((results["seed"] == 2) & (results["epoch"] == "20"))])
    assert phases.phase_by_phase(part).endpoint("erm", "early", "1:5").index.tolist() == [
        0,
        1,
        3,
        4,
        5,
    ]
    assert len(phases.phase_by_phase(part).endpoint("erm", "last", "1:5")) == 6


def test_an_accuracy_that_was_not_measured_reaches_nothing(results):
    (part,) = measure(results[(results["row"] != "pfdl") | (results["epoch"] != "160")])
    (table,) = (
        block
        for block in phases.blocks(part)
        if getattr(block, "caption", "").startswith("Epoch from")
    )
    assert {str(cell) for line in table.rows for cell in line.cells if line.header == "PFDL"} == {
        "not reached"
    }


def test_sixty_declared_tests_are_judged_together(results):
    (part,) = measure(results)
    declared = phases.phase_by_phase(part)
    judged = declared.judge()
    assert len(judged) == 60
    raw = []
    for row, rival, when, test in judged:
        ours, theirs = (declared.endpoint(key, when, test) for key in (row, rival))
        raw.append(stats.ttest_rel(ours, theirs).pvalue)
    order = np.argsort(raw)
    adjusted, largest = [0.0] * 60, 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (60 - rank) * raw[place]))
        adjusted[place] = largest
    assert [one.adjusted for one in judged.values()] == pytest.approx(adjusted)


def test_tables_say_what_is_significant_equal_or_neither(results):
    (part,) = measure(results)
    blocks = phases.blocks(part)
    comparisons = next(
        block
        for block in blocks
        if isinstance(block, Table) and block.caption.startswith("Declared")
    )
    cells = {row.header: row.cells for row in comparisons.rows}
    gain = cells["PFDL − ERM"][1]
    assert gain.strong
    assert gain.remark.startswith("6 of 6, p = ")
    assert "equal" not in gain.remark
    level = cells["Level penalty, as strong as PFDL − ERM"][1]
    assert level.remark.startswith("95 % +0.02 to +0.12, 6 of 6")
    assert level.remark.endswith("equal")
    placebo = comparisons.rows[-1]
    assert placebo.quiet
    assert placebo.header.startswith("Placebo")
    assert sum(isinstance(block, Plot) for block in blocks) == 3


def test_other_rows_are_not_judged_by_this_declaration(results):
    (part,) = measure(results[results["row"] != "placebo"])
    assert phases.blocks(part) == []


def test_trainings_of_several_lengths_are_judged_as_their_pages_declared(results):
    short = results[results["epoch"] == "last"]
    third = short[short["row"] == "covariance"].assign(row="covariance-third")
    names = (
        "pacs-20-epochs",
        "pacs-40-epochs",
        "pacs-80-epochs",
        "pacs-160-epochs",
        "pacs-20-epochs-confirmation",
    )
    parts = measure(pd.concat([pd.concat([short, third]).assign(data=name) for name in names]))
    blocks = phases.by_name(parts)
    notes = [block.note for block in blocks if isinstance(block, Table) and block.note]
    assert [note.partition(" declared tests")[0].rpartition(" ")[2] for note in notes] == [
        "30",
        "10",
        "15",
        "12",
    ]
    assert blocks[1].columns == ["seeds", "pacs-20-epochs", "pacs-40-epochs"]
    assert phases.by_name(measure(short)) == []


def test_the_papers_rows_are_judged_at_the_last_epoch():
    rows = {row: place for place, row in enumerate(PAPER)}
    values = [
        ("pacs", "resnet50", row, seed, "last", ratio, 50 + place + seed + (seed * place) % 3 / 9)
        for row, place in rows.items()
        for seed in range(5)
        for ratio in RATIOS
    ]
    (part,) = measure(frame(values))
    judged = phases.Declared(phases.TABLE_II, {"last epoch": phases.Place(part, ("last",))}).judge()
    assert len(judged) == 18
    assert judged["cn-cnbb", "cn", "last epoch", "1:5"].difference.pairs == 5
    assert phases.blocks(part)


def test_holms_method_counts_declared_tests_that_were_not_made():
    found = holm([0.01, float("nan"), 0.02])
    assert found[0] == pytest.approx(0.03)
    assert found[2] == pytest.approx(0.04)
    assert np.isnan(found[1])


def test_equivalence_is_two_one_sided_tests():
    differences = np.array([0.2, -0.3, 0.5, 0.1, -0.1, 0.4])
    error = differences.std(ddof=1) / 6**0.5
    found = PairedDifference(float(differences.mean()), float(error), 6).equivalence_p_value(1.0)
    below = stats.ttest_1samp(differences, 1.0, alternative="less").pvalue
    above = stats.ttest_1samp(differences, -1.0, alternative="greater").pvalue
    assert found == pytest.approx(max(below, above))
    assert PairedDifference(0.5, 0.0, 3).equivalence_p_value(1.0) == 0.0


def test_each_method_is_compared_at_the_setting_that_validation_chooses():
    validation = {
        "erm-wd-0.001-lr-0.01": 60.0,
        "pfdl-wd-0.0001-lr-0.03": 61.0,
        "covariance-wd-0.0005-lr-0.01": 62.0,
    }
    results = frame(
        ("pacs-40-epochs-sgd", "resnet50", row, seed, "chosen", test, value)
        for row in GRID
        for seed in range(3)
        for test, value in [
            ("validation", validation.get(row, 50.0)),
            *((ratio, seed) for ratio in RATIOS),
        ]
    )
    (part,) = measure(results)
    erm, pfdl, covariance = validation
    assert phases.best_sgd(part).comparisons == ((pfdl, erm), (covariance, erm))
    assert len(phases.same_sgd(part).judge()) == 36
