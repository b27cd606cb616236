from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl.data import ColoredMNIST
from pfdl.data.digits import bundled_digits
from pfdl.experiments.colored_mnist import run as colored_mnist
from pfdl.experiments.colored_mnist.report import (
    choose_by_test_environment,
    choose_on_training_environments,
    summarise,
    write_report,
)
from pfdl.experiments.colored_mnist.run import QUICK, ROWS, ColoredMNISTConfig
from tests.experiments.colored_mnist.test_run import with_steps


def made_up_results():
    """Two restarts for each row; only what a test looks at differs between rows."""
    lines = []
    for key in ROWS:
        for restart in (0, 1):
            line = {"row": key, "restart": restart, "train_accuracy": 70.0 + restart, "test_accuracy": 60.0 - restart}
            line |= {"held_out_accuracy_0.2": 69.0, "held_out_accuracy_0.1": 71.0}
            line |= {"held_out_risk_0.2": 0.60 + 0.01 * restart, "held_out_risk_0.1": 0.58 + 0.01 * restart}
            lines.append(line)
    return pd.DataFrame(lines)


def change(results, key, **values):
    for column, value in values.items():
        results.loc[results["row"] == key, column] = value


@pytest.fixture
def results():
    results = made_up_results()
    change(results, "irm-pfdl-10", **{"held_out_risk_0.2": 0.596, "held_out_risk_0.1": 0.594})  # even and low
    change(results, "irm-pfdl-300", **{"held_out_risk_0.2": 0.69, "held_out_risk_0.1": 0.69})  # even but high
    change(results, "irm-pfdl-100", test_accuracy=[64.0, 65.0])
    return results


def test_the_two_choices_look_at_different_columns(results):
    assert choose_on_training_environments(results, "irm").key == "irm-pfdl-10"
    assert choose_by_test_environment(results, "irm").key == "irm-pfdl-100"
    blind = results.assign(test_accuracy=0.0, train_accuracy=0.0)
    assert choose_on_training_environments(blind, "irm").key == "irm-pfdl-10"


def test_the_summary_has_population_deviation_and_standard_error(results):
    row = summarise(results).loc["irm-pfdl-100"]
    assert row["test"] == 64.5
    assert row["test_std"] == 0.5
    assert row["test_error"] == pytest.approx(0.5)


def test_the_report_holds_the_figures_and_their_sources(results, tmp_path):
    data = ColoredMNIST(bundled_digits(), max_train=100)
    paths = write_report(results, data, QUICK, tmp_path, "pfdl reproduce colored-mnist --quick")
    assert sorted(path.name for path in paths) == sorted(path.name for path in tmp_path.iterdir())
    table = (tmp_path / "table.md").read_text()
    assert "`pfdl reproduce colored-mnist --quick`" in table
    assert "| IRM | – | 70.50 ± 0.50 | 59.50 ± 0.50 | 70.81 ± 0.93 | 66.90 ± 2.54 | 70.8 ± 0.9 | 66.9 ± 2.5 |" in table
    assert (
        "| IRM+PFDL, chosen by the test environment (oracle) | 100 | 70.50 ± 0.50 | 64.50 ± 0.50 "
        "| – | – | 70.6 ± 0.8 | 67.5 ± 1.8 |" in table
    )
    # Restarts of IRM reach 60 and 59, those of the oracle's choice 64 and 65: differences 4 and 6.
    assert "| IRM+PFDL, chosen by the test environment (oracle) − IRM | 100 | +0.00 ± 0.00 | +5.00 ± 1.00 |" in table
    assert "| IRM+PFDL, chosen on training environments − IRM | 10 | +0.00 ± 0.00 | +0.00 ± 0.00 |" in table
    assert "picked them with the test environment in view" in table
    assert "These digits are not MNIST" in table
    assert "A quick run, not the published protocol" in table
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "results.csv"), results)
    for picture in ("environments.png", "restarts.png", "trade-off.png"):
        with Image.open(tmp_path / picture) as image:
            assert len(image.convert("L").getcolors()) > 10, "a picture must show something"


def test_the_full_protocol_on_mnist_is_not_called_quick(results, tmp_path):
    data = ColoredMNIST(bundled_digits())
    object.__setattr__(data.source, "is_mnist", True)
    write_report(results, data, ColoredMNISTConfig(), tmp_path, "command")
    table = (tmp_path / "table.md").read_text()
    assert "quick" not in table
    assert "not MNIST" not in table.replace(data.source.name, "")


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch):
        monkeypatch.delenv("PFDL_MNIST", raising=False)
        monkeypatch.setattr(colored_mnist, "ROWS", with_steps(ROWS, 2))

    def test_it_runs_and_names_its_files(self, tmp_path):
        arguments = ["--quick", "--restarts", "2", "--jobs", "1", "--device", "cpu", "-o", str(tmp_path)]
        result = CliRunner().invoke(app, ["reproduce", "colored-mnist", *arguments])
        assert result.exit_code == 0, result.output
        assert "Digits: scikit-learn's digits (not MNIST)" in result.stderr
        assert result.stdout.split() == [
            str(tmp_path / name)
            for name in ("results.csv", "table.md", "environments.png", "restarts.png", "trade-off.png")
        ]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--mnist", "nowhere"], "nowhere has no file train-images-idx3-ubyte"),
            (["--download"], "a download needs a folder"),
            (["--device", "abacus"], "the device 'abacus' is not available"),
        ],
    )
    def test_a_mistake_is_answered_with_a_sentence(self, arguments, message, tmp_path):
        result = CliRunner().invoke(app, ["reproduce", "colored-mnist", *arguments, "-o", str(tmp_path / "out")])
        assert result.exit_code == 2
        assert message in result.stderr
        assert "Traceback" not in result.output
        assert not (tmp_path / "out").exists()


def test_the_published_page_is_what_the_report_makes_of_the_published_results(tmp_path):
    folder = Path(__file__).parents[2] / "docs" / "results"
    published = pd.read_csv(folder / "colored-mnist" / "results.csv")
    write_report(published, ColoredMNIST(bundled_digits()), ColoredMNISTConfig(), tmp_path, "command")
    lines = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("|")]
    page = (folder / "colored-mnist.md").read_text().splitlines()
    assert [line for line in page if line.startswith("|")] == lines
