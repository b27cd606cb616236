"""README's figures, and those that pages say in their own words, follow from the CSV files of the
repository.
"""

import importlib
import re
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pfdl.data.spuco_mnist import MAGNITUDES
from pfdl_lab.mmads.paper import CELLS, METRICS, PAPER
from pfdl_lab.mmads.readings import distances

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
REPRODUCED = (RESULTS / "reproduced.md").read_text(encoding="utf-8")
ERRORS = ("beta_v_error", "ae", "se")


def shown(difference, digits=1):
    """Write the mean of paired differences and its standard error as pages do."""
    difference = difference.dropna()
    return f"{difference.mean():+.{digits}f} ± {difference.sem():.{digits}f}".replace("-", "−")


def interval(difference):
    """Write the 95 % interval of the mean of paired differences as pages do."""
    low, high = stats.t.interval(0.95, len(difference) - 1, difference.mean(), difference.sem())
    return f"{low:+.1f} to {high:+.1f}".replace("-", "−")


def last_epoch(folder):
    found = pd.read_csv(RESULTS / folder / "results.csv", dtype={"epoch": str}).query(
        "epoch == 'last'"
    )
    return found.set_index(["data", "backbone", "test", "row", "seed"]).sort_index()["value"]


@pytest.fixture(scope="module")
def endpoints():
    """The declared endpoints at 1:5 by data set, seed and row."""
    found = pd.read_csv(RESULTS / "phases" / "results.csv", dtype={"epoch": str})
    found = found[(found["test"] == "1:5") & found["data"].isin(["pacs", "petscapes"])]
    epoch = pd.to_numeric(found["epoch"], errors="coerce")
    tested = (epoch % 5 == 0) & (epoch >= 5)
    parts = {"early": tested & (epoch <= 40), "all": tested, "last": found["epoch"] == "last"}
    keys = ["data", "row", "seed"]
    return {
        name: found[rows].groupby(keys)["value"].mean().unstack("row")
        for name, rows in parts.items()
    }


@pytest.mark.parametrize(
    ("row", "title"),
    [
        ("pfdl", "PFDL"),
        ("covariance", "decorrelation alone, as strong"),
        ("level-matched", "level penalty, as strong"),
    ],
)
def test_the_table_of_phases(endpoints, row, title):
    cells = []
    gains = {name: table[row] - table["erm"] for name, table in endpoints.items()}
    for gain in gains.values():
        difference = gain["pacs"].dropna()
        assert len(difference) == 12
        cells.append(shown(difference, 2))
    assert f"| {title} | {' | '.join(cells)} |" in README
    early, last = (shown(gains[name]["pacs"]) for name in ("early", "last"))
    assert f"| {early} | {last} |" in REPRODUCED
    if row == "pfdl":
        assert gains["last"]["petscapes"].count() == gains["early"]["petscapes"].count() == 12
        on_pets = {name: shown(gains[name]["petscapes"]) for name in ("early", "last")}
        plain = [
            f"{endpoints['early']['erm'][data].mean():.1f} %" for data in ("pacs", "petscapes")
        ]
        assert (
            f"{early} points on PACS (ERM: {plain[0]}) and by {on_pets['early']} on PetScapes"
            f" ({plain[1]}" in README
        )
        noise = endpoints["last"]["pfdl"] - endpoints["last"]["placebo"]
        assert (
            f"PFDL with λ = 0, it is at {shown(noise['pacs'])} there on PACS (not declared)"
            in README
        )
        intervals = [interval(gains["last"][data]) for data in ("pacs", "petscapes")]
        assert (
            f"it is at {last} (95 % interval {intervals[0]}) and {on_pets['last']} ({intervals[1]})"
            in README
        )
        assert f"not declared: {shown(gains['last'], 2)}**" in (RESULTS / "phases.md").read_text(
            encoding="utf-8"
        )


def test_the_finding_on_g_by_sgd():
    ratios = last_epoch("phases")["pacs-160-epochs-fresh-seeds", "resnet50"].unstack("row")
    means = ratios.loc[
        [f"{one}:{other}" for one, other in ("15", "13", "11", "21", "31", "41", "51")]
    ]
    gain = (means["pfdl-sgd"] - means["erm"]).groupby("seed").mean()
    assert len(gain) == 6
    assert f"to confirm it, have {shown(gain)} (" in " ".join(REPRODUCED.split())


def test_the_finding_on_budgets():
    found = pd.read_csv(RESULTS / "budgets" / "results.csv")
    fresh = found.query(
        "data == 'pacs-20-epochs-confirmation' and test == '1:5' and epoch == 'last'"
    )
    accuracy = fresh.pivot_table(index="seed", columns="row", values="value")
    gain = accuracy["pfdl"] - accuracy["erm"]
    assert f"on PACS PFDL ends {shown(gain)} ahead (significant)" in README


@pytest.fixture(scope="module")
def mmads():
    """What each method was measured at where S and V are independent, by cell of the table."""
    found = pd.read_csv(RESULTS / "mmads" / "results.csv")
    found = found[found["setting"] == "independent"].set_index(["n", "p", "r"]).sort_index()
    return lambda method, *cell: found[found["method"] == method].loc[cell]


def test_the_screen_in_the_table_of_mmads(mmads):
    values = mmads("Screened OLS", 2000, 20, 1.7).groupby("metric")["value"]
    cells = [f"{values.mean()[metric]:.3f} ± {values.sem()[metric]:.3f}" for metric in ERRORS]
    assert f"| our screen, then OLS | {' | '.join(cells)} |" in README


@pytest.mark.parametrize("method", ["OLS", "DWR", "PFDL"])
def test_the_tables_of_mmads_beside_the_papers(mmads, method):
    values, paper = mmads(method, 2000, 20, 1.7).groupby("metric")["value"], PAPER[method]
    printed = {name: f"{paper[name][CELLS.index((2000, 20, 1.7))]:.3f}" for name in METRICS}
    ours = {name: f"{values.mean()[name]:.3f} ± {values.sem()[name]:.3f}" for name in METRICS}
    cells = {name: f"{ours[name]} / {printed[name]}" for name in METRICS}
    assert f"| {method} | {' | '.join(cells.values())} |" in REPRODUCED
    assert f"| {method} | {' | '.join(cells[name] for name in ERRORS)} |" in README
    changes = []
    for metric in ERRORS:
        large, small = (
            mmads(method, n, 10, 1.7).query(f"metric == '{metric}'").set_index("seed")["value"]
            for n in (4000, 1000)
        )
        change, printed = large - small, paper[metric][2] - paper[metric][0]
        changes.append(f"{shown(change, 3)} / {printed:+.3f}".replace("-", "−"))
        assert f" {shown(change, 3)} |" in (RESULTS / "mmads.md").read_text(encoding="utf-8")
    assert f"| {method} | {' | '.join(changes)} |" in REPRODUCED


@pytest.fixture(scope="module")
def last():
    """The accuracy on Colored-MNIST at the last step, by its restart: of the test, or in training,
    by the row.
    """
    found = pd.read_csv(RESULTS / "colored-mnist-fresh" / "results.csv")
    return found.pivot_table(
        index="restart", columns="row", values=["test_accuracy", "train_accuracy"]
    )


@pytest.mark.parametrize(
    ("row", "title", "published"),
    [
        ("irm-pfdl-1", "IRM + PFDL, λ = 1, as in the paper", "67.5"),
        ("irm-pfdl-30", "IRM + PFDL, λ = 30, chosen on the training environments", ""),
    ],
)
def test_the_page_of_the_paper_on_colored_mnist(last, row, title, published):
    last = last["test_accuracy"]
    gain = last[row] - last["irm"]
    line = f"| {title} | {last[row].mean():.1f} | {published} | {shown(gain, 2)} |"
    assert line.replace("|  |", "| |") in REPRODUCED


@pytest.mark.parametrize(
    ("data", "backbone", "row", "title"),
    [
        ("pacs", "resnet50", "pfdl-indexed", "PFDL, indexed g"),
        ("pacs", "resnet50", "standardised", "PFDL on standardised features"),
        ("pacs", "resnet50", "mean", "mean of the other features instead of g"),
        ("pacs", "resnet50", "pfdl-centred", "PFDL, centred, λ = 1"),
        ("pacs", "resnet50", "weight-decay", "ERM, weight decay 5e-4"),
        ("shapes", "resnet50", "pfdl", "PFDL"),
        ("shapes", "resnet50", "level", "level penalty"),
        ("shapes", "resnet50", "covariance", "decorrelation, as strong as PFDL"),
        ("pacs", "resnet18", "pfdl", "PFDL"),
        ("pacs", "resnet18", "level", "level penalty"),
        ("shapes", "resnet18", "pfdl", "PFDL"),
        ("shapes", "resnet18", "level", "level penalty"),
    ],
)
def test_the_table_of_other_networks(data, backbone, row, title):
    found = pd.read_csv(RESULTS / "decorrelation" / "results.csv", dtype={"epoch": str})
    found = found[
        (found["data"] == data) & (found["backbone"] == backbone) & (found["test"] == "1:5")
    ]
    cells = []
    for epochs in (["5", "10", "20", "30", "40"], ["last"]):
        means = (
            found[found["epoch"].isin(epochs)].groupby(["row", "seed"])["value"].mean().unstack(0)
        )
        difference = (means[row] - means["erm"]).dropna()
        count = f"{(difference > 0).sum()} of {len(difference)}"
        cells.append(f"{shown(difference, 2)}, {count}")
    page = (RESULTS / "decorrelation.md").read_text(encoding="utf-8")
    assert f"| {title} | {cells[0]} | {cells[1]} |" in page


def test_the_finding_on_readings():
    ranked = distances(pd.read_csv(RESULTS / "readings" / "results.csv").query("sees != 'nothing'"))
    closest, on_printed = 100 * ranked["distance"].iloc[0], 100 * ranked["printed"].iloc[0]
    assert ranked["printed"].idxmin() == ranked.index[0]
    assert f"Of {len(ranked):,} [ways to read it]" in README
    assert f"the closest misses the printed figures by {on_printed:.0f} % on average" in README
    assert (
        f"Of {len(ranked):,} [readings](readings.md) the closest is {closest:.0f} % off"
        in REPRODUCED
    )
    page = (RESULTS / "readings.md").read_text(encoding="utf-8")
    assert f"The closest of {len(ranked):,} is {closest:.1f} % off on average" in page
    assert f"without the β_S errors {on_printed:.1f} %" in page


def test_the_declared_tests_of_the_rows_of_mmads(mmads):
    differ, equal = [], []
    for method, metric, (number, cell) in product(
        ("OLS", "Lasso", "Ridge", "DWR"), ERRORS, enumerate(CELLS)
    ):
        values, printed = (
            mmads(method, *cell).query("metric == @metric")["value"],
            PAPER[method][metric][number],
        )
        differ.append(stats.ttest_1samp(values, printed).pvalue)
        ends = ((0.9 * printed, "greater"), (1.1 * printed, "less"))
        equal.append(
            max(stats.ttest_1samp(values, end, alternative=side).pvalue for end, side in ends)
        )
    by_holm = [
        np.cumprod(np.sort(chances) * np.arange(84, 0, -1) <= 0.05).sum()
        for chances in (differ, equal)
    ]
    said = "Of 84 tests {} show a difference (bold) and {} equality within 10 %".format(*by_holm)
    assert said in (RESULTS / "mmads.md").read_text(encoding="utf-8")
    said = (
        "{1} of our 84 figures are shown to lie within 10 % of the printed ones, {0} differ".format(
            *by_holm
        )
    )
    assert said in README
    assert said in " ".join(REPRODUCED.split())


def test_the_finding_on_colored_mnist(last):
    test, train = last["test_accuracy"], last["train_accuracy"]
    gains = [shown(test[f"irm-pfdl-{weight}"] - test["irm"], 2) for weight in (1, 30)]
    lost = shown(train["irm"] - train["irm-pfdl-30"], 2)[1:]
    assert f"PFDL adds {gains[0]} points to IRM's {test['irm'].mean():.1f} % in the test" in README
    assert f"it adds {gains[1]}, for {lost} points less in training" in README


def test_the_finding_on_the_papers_other_rows():
    found = last_epoch("nico")["pacs", "resnet50", "1:5"].unstack("row")
    ahead, behind = (shown(found[row] - found["erm"])[1:] for row in ("cn-bn", "dwr-published"))
    assert f"ahead of the ResNet-50 by {ahead} points at 1:5" in README
    assert f"DWR is behind by {behind}: its learnt" in README


def test_the_finding_on_contexts():
    splits = pd.read_csv(RESULTS / "contexts-pretrained.csv")
    fresh = splits[splits["seed"] // 10 == 24]
    added, possible = (fresh[f"{name} 1:5"] - fresh["classes 1:5"] for name in ("inferred", "true"))
    lost = shown(fresh["inferred 5:1"] - fresh["classes 5:1"])
    assert f"in {fresh['believed'].sum()} of {len(fresh)} fresh splits of PACS" in README
    assert f"gains {shown(added)[1:]} points at 1:5 on PACS and costs {lost[1:]} at 5:1" in README
    assert (
        f"(both significant; the true contexts gain {shown(possible)[1:]}, not declared)" in README
    )
    page = " ".join((RESULTS / "contexts.md").read_text(encoding="utf-8").split())
    assert f"{100 * added.mean() / possible.mean():.0f} ± 10 % on seeds 240 to 249" in page
    assert f"{shown(added)} points at 1:5 (Holm p = 0.007)" in page
    assert f"{lost} at 5:1 (Holm p = 0.012)" in page


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("difficulties", "is ahead in {} and behind in none, and in {} of the 12 against ERM"),
        ("wrong-labels", "it is ahead in {} of 48 and behind in none; in {} of the 12 against ERM"),
    ],
)
def test_the_findings_on_spuco_mnist(name, said):
    table = importlib.import_module("spuco_mnist").comparisons(RESULTS / f"spuco-mnist-{name}.csv")
    tests = re.findall(r"([+−])[\d.]+ ± [\d.]+, Holm ([\d.e-]+)", table)
    significant = [sign if float(adjusted) <= 0.05 else "" for sign, adjusted in tests]
    assert set(significant) == {"+", ""}
    assert len(tests) == 48
    assert said.format(significant.count("+"), significant[::4].count("+")) in README


@pytest.mark.parametrize("row", ["erm", "jtt", "spare", "eiil", "ours", "true"])
def test_the_table_of_spuco_mnist(row):
    by_difficulty = (
        pd.read_csv(RESULTS / "spuco-mnist-difficulties.csv")
        .query("row == @row")
        .groupby("magnitude")
    )
    wrong_labels = pd.read_csv(RESULTS / "spuco-mnist-wrong-labels.csv").query(
        "row == @row and magnitude == 'medium'"
    )
    values = [by_difficulty.get_group(name)["chosen_average"] for name in MAGNITUDES]
    cells = [
        f"{one.mean():.1f} ± {one.sem():.1f}" for one in (*values, wrong_labels["chosen_average"])
    ]
    title = {"ours": "ours", "true": "true contexts"}.get(row, row.upper())
    assert f"| {title} | {' | '.join(cells)} |" in README


def test_the_finding_on_the_screen():
    page = importlib.import_module("real_tables_page")
    listed, selected = page.read("real-tables-fresh", "real-tables-fresh-injected")
    finds, alarms = (
        ("names {} % of {}", "drops {} %", "drops {} %"),
        ("in {} of {} untouched tables", "in {}", "in {}"),
    )
    for grades, found, wrong in zip(page.ACTS.values(), finds, alarms, strict=True):
        _, total, share, *ends = re.findall(r"[\d.]+", page.recall(page.injected(selected, grades)))
        assert found.format(share, total) in README
        assert "({}{} to {})".format("95 % interval " * ("names" in found), *ends) in README
        count, total, *figures = re.findall(r"[\d.]+", page.wrong(listed, grades)[1])
        assert f"{wrong.format(count, total)} ({{}} %, {{}} to {{}})".format(*figures) in README


def test_the_finding_on_pretrained_networks():
    found = last_epoch("practice")
    on_top = found["pacs-later-rule", "efficientnet-lite0-features", "1:5"].unstack("row")
    tuned = found["pacs-later-rule-fine-tuned", "efficientnet-lite0", "1:5"].unstack("row")
    on_features = shown(on_top["sampler"] - on_top["sampler-classes"])
    assert f"counts as ERM, had shown no gain ({on_features})." in README
    fresh = (
        found["pacs-else-classes-30-epochs", "efficientnet-lite0-features", at].unstack("row")
        for at in ("1:5", "5:1")
    )
    # A split without contexts trains as ERM does, to the last digit; balanced classes stand in for
    # it there.
    added = (
        (table["sampler"] - table["sampler-classes"]) * (table["sampler"] != table["erm"])
        for table in fresh
    )
    gained, lost = (shown(difference)[1:] for difference in added)
    assert f"top](docs/results/practice.md) they gain {gained} for {lost} (ten" in README
    assert len(tuned) == 10
    inferred = shown(tuned["sampler"] - tuned["sampler-classes"])
    declared = found["pacs", "efficientnet-lite0", "1:5"].unstack("row")
    known = shown(declared["sampler-known"] - declared["sampler-classes"])
    assert f"fine-tuned ({inferred}; the true contexts gained {known[1:]})" in README
    reverse = found["pacs-later-rule-fine-tuned", "efficientnet-lite0", "5:1"].unstack("row")
    page = (RESULTS / "practice.md").read_text(encoding="utf-8")
    assert f"{inferred} points at 1:5 (" in page
    assert f"{shown(reverse['sampler'] - reverse['sampler-classes'], 2)} at 5:1" in page


def test_the_findings_on_networks_from_scratch():
    found = last_epoch("images-contexts")
    shapes = found["shapes-240-epochs", "small", "1:5"].unstack("row")
    gain = shown(shapes["sampler"] - shapes["sampler-classes"])
    assert f"[240 epochs](docs/results/images-contexts.md) ({gain})" in README
    by_row = {
        test: found["pacs-beyond-classes", "resnet18", test].unstack("row")
        for test in ("5:1", "1:5")
    }
    assert all(len(table) == 10 for table in by_row.values())
    rows = ("sampler", "sampler-known")
    said = [
        shown(table[row] - table["sampler-classes"]) for row in rows for table in by_row.values()
    ]
    lost, gained, lost_by_true, gained_by_true = (words.lstrip("−+") for words in said)
    assert (
        f"inferred contexts lose {lost} points at 5:1, and a gain at 1:5 is not shown (+{gained})"
        in README
    )
    assert f"lose {lost_by_true} and gain {gained_by_true}" in README
