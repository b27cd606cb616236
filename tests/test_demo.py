import pytest
import torch
from rich.console import Console

from pfdl import demo


def test_scenes_agree_with_the_label_as_often_as_asked():
    x, y = demo.make_scenes(20000, agreement=0.9, seed=3)
    scene_means = torch.stack([x[y == label, demo.OWN_INPUTS :].mean(0) for label in range(demo.CLASSES)])
    always, labels = demo.make_scenes(20000, agreement=1.0, seed=4)
    scenes = torch.stack([always[labels == label, demo.OWN_INPUTS :].mean(0) for label in range(demo.CLASSES)])
    # E[scene | label] = 0.9 own + 0.1/3 of each other
    expected = 0.9 * scenes + 0.1 / 3 * (scenes.sum(0) - scenes)
    torch.testing.assert_close(scene_means, expected, rtol=0, atol=0.06)


def test_linear_r2_is_that_of_regression():
    u = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).double()
    u[:, 2] = u[:, 0] + 0.5 * u[:, 2]
    u = torch.cat([u, torch.ones(400, 1).double()], dim=1)  # a constant feature is left out
    unexplained = 0.0
    for j in range(3):
        others = torch.cat([u[:, [k for k in range(3) if k != j]], torch.ones(400, 1).double()], dim=1)
        fit = torch.linalg.lstsq(others, u[:, j]).solution
        unexplained += (u[:, j] - others @ fit).square().sum() / 399
    assert demo.linear_r2(u) == pytest.approx(1 - (unexplained / u.var(0).sum()).item(), abs=1e-6)


def test_pairs_the_seeds_and_shows_differences():
    console = Console(record=True, width=100)
    table = demo.run(console, seeds=2, rows=256, epochs=1)
    console.print(table)
    text = console.export_text()
    assert [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")] == list(demo.METHODS)
    assert text.count("±") >= 6


def test_difference_to_erm_by_hand():
    assert demo._difference(torch.tensor([1.0, 3.0])) == " (+2.0±1.0)"
    assert demo._difference(torch.tensor([-1.25])) == " (-1.2)"


def test_regression_on_a_biased_sample_shows_what_leans_on_it():
    console = Console(record=True, width=100)
    console.print(demo.regression_table(seeds=1, rows=1000))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in console.export_text().splitlines()]
    found = {row[0]: [float(cell) for cell in row[1:]] for row in rows if row and row[0] in ("OLS", "PFDLRegressor")}
    assert found["PFDLRegressor"][-1] < 0.01 < found["OLS"][-1]  # coefficients of columns without effect
    assert found["PFDLRegressor"][0] < found["OLS"][0]  # where the bias is turned round
    assert found["PFDLRegressor"][3] > found["OLS"][3]  # where it is as in training, leaning on it pays
