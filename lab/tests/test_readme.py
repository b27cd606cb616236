"""README's figures, and those that pages say in their own words, follow from the CSV files of the repository."""

import importlib
import re
from pathlib import Path

import pandas as pd
import pytest

from pfdl.data.spuco_mnist import MAGNITUDES
from pfdl_lab.mmads.paper import CELLS, METRICS, PAPER
from pfdl_lab.mmads.readings import distances

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
REPRODUCED = (RESULTS / "reproduced.md").read_text(encoding="utf-8")
ERRORS = ("beta_v_error", "ae", "se")


def signed(mean, error, digits=2):
    return f"{mean:+.{digits}f} ± {error:.{digits}f}".replace("-", "−")


@pytest.fixture(scope="module")
def endpoints():
    """The declared endpoints at 1:5 by row and seed."""
    found = pd.read_csv(RESULTS / "phases" / "results.csv", dtype={"epoch": str})
    found = found[(found["test"] == "1:5") & (found["data"] == "pacs")]
    epoch = pd.to_numeric(found["epoch"], errors="coerce")
    tested = (epoch % 5 == 0) & (epoch >= 5)
    parts = {"early": tested & (epoch <= 40), "all": tested, "last": found["epoch"] == "last"}
    return {name: found[rows].groupby(["row", "seed"])["value"].mean().unstack(0) for name, rows in parts.items()}


@pytest.mark.parametrize(
    ("row", "title"),
    [
        ("pfdl", "PFDL"),
        ("covariance", "decorrelation alone, as strong"),
        ("level-matched", "level penalty, no g, as strong"),
    ],
)
def test_the_table_of_phases(endpoints, row, title):
    cells = []
    for table in endpoints.values():
        difference = table[row] - table["erm"]
        assert len(difference) == 12
        cells.append(signed(difference.mean(), difference.sem()))
    assert f"| {title} | {' | '.join(cells)} |" in README
    early, last = (endpoints[name][row] - endpoints[name]["erm"] for name in ("early", "last"))
    early, last = signed(early.mean(), early.sem(), 1), signed(last.mean(), last.sem(), 1)
    assert f"| {early} | {last} |" in REPRODUCED
    if row == "pfdl":
        assert f"{early} points over epochs 5 to 40" in README
        assert f"{last} at the last epoch" in README


def test_the_finding_on_budgets():
    found = pd.read_csv(RESULTS / "budgets" / "results.csv")
    fresh = found.query("data == 'pacs-20-epochs-confirmation' and test == '1:5' and epoch == 'last'")
    accuracy = fresh.pivot_table(index="seed", columns="row", values="value")
    gain = accuracy["pfdl"] - accuracy["erm"]
    assert f"it ends {signed(gain.mean(), gain.sem(), 1)} ahead" in README


@pytest.fixture(scope="module")
def mmads():
    """What each method was measured at where S and V are independent, by cell of the table."""
    found = pd.read_csv(RESULTS / "mmads" / "results.csv")
    found = found[found["setting"] == "independent"].set_index(["n", "p", "r"]).sort_index()
    return lambda method, *cell: found[found["method"] == method].loc[cell]


def test_the_screen_in_the_table_of_mmads(mmads):
    means = mmads("Screened OLS", 2000, 20, 1.7).groupby("metric")["value"].mean()
    cells = [f"{means[metric]:.3f}" for metric in ERRORS]
    assert f"| screen, ours | {' | '.join(cells)} |" in README


@pytest.mark.parametrize("method", ["OLS", "DWR", "PFDL"])
def test_the_tables_of_mmads_beside_the_papers(mmads, method):
    means, paper = mmads(method, 2000, 20, 1.7).groupby("metric")["value"].mean(), PAPER[method]
    cells = {name: f"{means[name]:.3f} / {paper[name][CELLS.index((2000, 20, 1.7))]:.3f}" for name in METRICS}
    assert f"| {method} | {' | '.join(cells.values())} |" in REPRODUCED
    assert f"| {method} | {' | '.join(cells[name] for name in ERRORS)} |" in README
    changes = []
    for metric in ERRORS:
        large, small = (
            mmads(method, n, 10, 1.7).query(f"metric == '{metric}'").set_index("seed")["value"] for n in (4000, 1000)
        )
        change, printed = large - small, paper[metric][2] - paper[metric][0]
        changes.append(f"{signed(change.mean(), change.sem(), 3)} / {printed:+.3f}".replace("-", "−"))
        assert f" {signed(change.mean(), change.sem(), 3)} |" in (RESULTS / "mmads.md").read_text(encoding="utf-8")
    assert f"| {method} | {' | '.join(changes)} |" in REPRODUCED


@pytest.fixture(scope="module")
def last():
    """The accuracy on Colored-MNIST at the last step by row and restart."""
    found = pd.read_csv(RESULTS / "colored-mnist" / "results.csv")
    return found.sort_values("step").groupby(["row", "restart"])["test_accuracy"].last().unstack(0)


@pytest.mark.parametrize(
    ("row", "title", "published"),
    [
        ("irm-pfdl-1", "IRM + PFDL, λ = 1, as in the paper", "67.5"),
        ("irm-pfdl-30", "IRM + PFDL, λ = 30, chosen on the training environments", ""),
    ],
)
def test_the_page_of_the_paper_on_colored_mnist(last, row, title, published):
    gain = last[row] - last["irm"]
    line = f"| {title} | {last[row].mean():.1f} | {published} | {signed(gain.mean(), gain.sem(), 1)} |"
    assert line.replace("|  |", "| |") in REPRODUCED


@pytest.mark.parametrize(
    ("data", "backbone", "row", "title"),
    [
        ("pacs", "resnet50", "pfdl", "PFDL"),
        ("pacs", "resnet50", "pfdl-indexed", "PFDL, indexed g"),
        ("pacs", "resnet50", "standardised", "PFDL on standardised features"),
        ("pacs", "resnet50", "mean", "mean of the other features instead of g"),
        ("pacs", "resnet50", "pfdl-centred", "PFDL, centred, λ = 1"),
        ("pacs", "resnet50", "weight-decay", "ERM, weight decay 5e-4"),
        ("petscapes", "resnet50", "pfdl", "PFDL"),
        ("petscapes", "resnet50", "level", "level penalty"),
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
    found = found[(found["data"] == data) & (found["backbone"] == backbone) & (found["test"] == "1:5")]
    cells = []
    for epochs in (["5", "10", "20", "30", "40"], ["last"]):
        means = found[found["epoch"].isin(epochs)].groupby(["row", "seed"])["value"].mean().unstack(0)
        difference = (means[row] - means["erm"]).dropna()
        count = f"{(difference > 0).sum()} of {len(difference)}"
        cells.append(f"{signed(difference.mean(), difference.sem())}, {count}")
    page = (RESULTS / "decorrelation.md").read_text(encoding="utf-8")
    assert f"| {title} | {cells[0]} | {cells[1]} |" in page


def test_the_finding_on_readings():
    ranked = distances(pd.read_csv(RESULTS / "readings" / "results.csv"))
    assert f"Of {len(ranked)} [readings]" in README
    assert f"the closest is {100 * ranked['distance'].iloc[0]:.0f} % off" in README


def test_the_finding_on_colored_mnist(last):
    assert f"ERM {last['erm'].mean():.1f} % and IRM {last['irm'].mean():.1f} %" in README
    gain = last["irm-pfdl-1"] - last["irm"]
    assert f"PFDL adds {gain.mean():.1f} ± {gain.sem():.1f} points to IRM" in README


def test_the_finding_on_contexts():
    splits = pd.read_csv(RESULTS / "contexts-pretrained.csv")
    fresh, earlier = (splits[splits["seed"] // 10 == ten] for ten in (8, 3))
    added, possible = (fresh[f"{name} 1:5"] - fresh["classes 1:5"] for name in ("inferred", "true"))
    assert f"in {fresh['believed'].sum()} of {len(fresh)} fresh splits of PACS" in README
    assert f"adds {added.mean():.1f} ± {added.sem():.1f} points at 1:5 beyond balanced classes" in README
    assert f"{100 * added.mean() / possible.mean():.0f} % of what the true contexts add" in README
    added, possible = (earlier[f"{name} 1:5"] - earlier["classes 1:5"] for name in ("inferred", "true"))
    share = 100 * added.mean() / possible.mean()
    assert f"(in {earlier['believed'].sum()} of {len(earlier)} earlier ones: {share:.0f} %)" in README
    noisy = pd.read_csv(RESULTS / "spuco-mnist-own-rules.csv")
    table = noisy.pivot(index="seed", columns="row", values=["chosen_average", "chosen_worst"])
    for measure, said in (("chosen_average", "averaged over groups"), ("chosen_worst", "in the worst group")):
        gain = table[measure]["ours"] - table[measure]["erm"]
        assert f"{signed(gain.mean(), gain.sem(), 1)} points {said}" in README


def test_the_finding_on_spuco_mnist():
    table = importlib.import_module("spuco_mnist").comparisons(RESULTS / "spuco-mnist-difficulties.csv")
    tests = re.findall(r"([+−])[\d.]+ ± [\d.]+, Holm ([\d.e-]+)", table)
    significant = [sign for sign, adjusted in tests if float(adjusted) <= 0.05]
    assert set(significant) == {"+"}
    assert f"in {len(significant)} of {len(tests)} declared tests and behind in none" in README


@pytest.mark.parametrize("row", ["erm", "jtt", "spare", "eiil", "ours", "true"])
def test_the_table_of_spuco_mnist(row):
    by_difficulty = pd.read_csv(RESULTS / "spuco-mnist-difficulties.csv").query("row == @row").groupby("magnitude")
    wrong_labels = pd.read_csv(RESULTS / "spuco-mnist-own-rules.csv").query("row == @row")["chosen_average"]
    values = [by_difficulty.get_group(name)["chosen_average"] for name in MAGNITUDES]
    cells = [f"{one.mean():.1f} ± {one.sem():.1f}" for one in (*values, wrong_labels)]
    title = {"ours": "ours", "true": "true contexts"}.get(row, row.upper())
    assert f"| {title} | {' | '.join(cells)} |" in README


def test_the_finding_on_the_screen():
    page = (RESULTS / "real-tables.md").read_text(encoding="utf-8")
    detector, strong = (
        next(line for line in page.splitlines() if line.startswith(start))
        for start in ("| the detector", '| the step with `drop="strong"`')
    )
    assert "386 of 534 (72%)" in detector
    assert "375 of 534 (70%) | 4 of 406 (1.0%)" in strong
    for figure in ("names 72 %", "acts on 70 %", "touches 1.0 %"):
        assert figure in README


def test_the_finding_on_pretrained_networks():
    found = pd.read_csv(RESULTS / "practice" / "results.csv", dtype={"epoch": str})
    found = found.query("test == '1:5' and epoch == 'last'").set_index(["data", "backbone", "row", "seed"])["value"]
    tuned = found["pacs", "efficientnet-lite0"].unstack("row")
    on_top = found["pacs-later-rule", "efficientnet-lite0-features"].unstack("row")
    gains = [table[row] - table["sampler-classes"] for table, row in ((tuned, "sampler"), (tuned, "sampler-known"))]
    gains.append(on_top["sampler"] - on_top["sampler-classes"])
    inferred, true, later = (signed(one.mean(), one.sem(), 1) for one in gains)
    assert f"they add {later.removeprefix('+')} (not significant)" in README
    assert f"({inferred}; the true ones {true})" in README
