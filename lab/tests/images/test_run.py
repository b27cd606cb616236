"""The experiment on images: paired seeds on every data set, kept training by training."""

import dataclasses
from itertools import product

import pandas as pd
import pytest
import torch
from tests.cli.typing_commands import typed
from tests.data.image_files import make_folder
from tests.vision.tiny_images import TinySource

import pfdl
from pfdl.contexts import InferredContexts, worst_group_accuracy
from pfdl.objectives import make_objective, registry
from pfdl.objectives.penalties import CovarianceDecorrelation, Penalty
from pfdl.objectives.weightings import Weighting
from pfdl_lab.images import inferred, run, testing
from pfdl_lab.images.config import NICO, ImagesConfig
from pfdl_lab.images.data import SAME, SHIFTED, ImageData
from pfdl_lab.images.rows import GRID, LISTS, PAPER, RATIOS, ROWS, find_row, row_keys
from pfdl_lab.images.testing import CHOSEN, LAST

TINY = ImagesConfig(("erm", "pfdl"), seeds=2, backbone="mlp", image_size=8, epochs=2, batch_size=16)


def study(output, data, options, **how):
    """Type the command, for one epoch of two tiny trainings a row."""
    small = "--backbone mlp --image-size 8 --seeds 2 --epochs 1 --device cpu"
    return typed(f"study {data} {small} {options} -o {output}", **how)


def test_every_row_makes_an_objective_and_has_a_plain_training_to_compare_with():
    for key, row in ROWS.items():
        assert make_objective(row.objective, 8, **row.settings) is not None
        assert row.contexts in ("hidden", "one", "inferred", "errors", "halves", "known")
        assert make_objective(row.objective, 8).needs_contexts <= (row.contexts != "hidden")
        baseline = ROWS[row.baseline]
        assert baseline.objective in ("erm", "balance"), key
        if key in GRID:
            kept = ("batch_size", "learning_rate", "weight_decay", "backbone")
            assert [getattr(row, name) for name in kept] == [
                getattr(baseline, name) for name in kept
            ]


def test_the_papers_table_is_a_list_of_six_rows_by_its_protocol():
    assert LISTS["paper"] == ("dwr-published", "cn", "cn-bn", "cn-cnbb", "erm", "pfdl")
    config = ImagesConfig(LISTS["paper"], **NICO)
    assert (config.epochs, config.learning_rate, config.backbone, config.validation) == (
        160,
        0.01,
        "resnet50",
        0.0,
    )
    assert config.decay_every is None  # half of the epochs
    assert all(len(row.paper) == len(RATIOS) for row in PAPER.values())
    assert len(LISTS["grid"]) == 27
    assert row_keys("paper,covariance,pfdl") == (*config.rows, "covariance")


class Shrink(Penalty):
    """Penalise the mean squared feature."""

    def forward(self, features):
        return features.square().mean()


class Ask(Weighting):
    """Weigh all samples alike, but ask for contexts."""

    needs = ("labels", "environments")

    def forward(self, labels, environments):
        assert (environments >= 0).all()
        return self.finish(torch.ones(len(labels)))


def test_an_objective_that_a_stranger_registered_is_a_row(digits, tmp_path, monkeypatch):
    """Nothing else changes: its name is a key, its contexts are inferred if it reads contexts."""
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    pfdl.register_objective("made-up", Shrink)
    pfdl.register_objective("asks", Ask)
    assert (find_row("made-up").contexts, find_row("asks").contexts) == ("hidden", "inferred")
    result = study(tmp_path, "colored-mnist", "--rows erm,made-up,asks,irm+made-up")
    assert set(pd.read_csv(tmp_path / "results.csv")["row"]) == {
        "erm",
        "made-up",
        "asks",
        "irm+made-up",
    }
    page = (tmp_path / "table.md").read_text()
    for row in ("made-up", "asks", "irm+made-up"):
        assert f"| {row} | 2 |" in page
        assert f"| {row} | 2 |" in result.stdout


def test_all_rows_of_a_seed_share_the_split_and_are_tested_at_seven_ratios(
    tiny, tmp_path, monkeypatch
):
    loaded = []
    load = TinySource.load
    monkeypatch.setattr(
        TinySource, "load", lambda self, path, *rest: loaded.append(path) or load(self, path, *rest)
    )
    results = run.run(TINY, [tiny], tmp_path)
    # Once, for all trainings and tests
    assert sorted(loaded) == [sample.path for sample in TinySource().samples]
    assert not (tmp_path / "images").exists()
    assert set(results["test"]) == {*RATIOS, "whole", "worst group", run.ESS}
    assert set(results["epoch"]) == {LAST}
    counts = dict(results.groupby(["row", "seed"]).size())
    assert counts == dict.fromkeys(product(TINY.rows, (0, 1)), 10)
    stored = pd.read_csv(tmp_path / "results.csv")
    assert stored.columns.tolist() == list(run.COLUMNS)
    assert set(stored["data"]) == {"shapes"}


def test_a_stopped_experiment_goes_on_and_other_images_are_other_results(
    tiny, tmp_path, monkeypatch
):
    trained = []
    original = run.train_row

    def stop_at_third(settings, *args, **kwargs):
        trained.append(settings.objective)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return original(settings, *args, **kwargs)

    monkeypatch.setattr(run, "train_row", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        run.run(TINY, [tiny], tmp_path)
    first = run.run(TINY, [tiny], tmp_path)
    assert len(trained) == 5  # two done, one stopped, two more
    pd.testing.assert_frame_equal(run.run(TINY, [tiny], tmp_path), first)
    assert len(trained) == 5
    monkeypatch.setattr(ImageData, "open", lambda self, *_: TinySource(per_cell=31))
    run.run(TINY, [tiny], tmp_path)
    assert len(trained) == 9


def test_rows_are_tested_and_probed_along_the_training_and_where_validation_chooses(tiny, tmp_path):
    config = dataclasses.replace(TINY, seeds=1, validation=0.2, test_every=1)
    results = run.run(config, [tiny], tmp_path)
    assert set(results["epoch"]) == {"1", "2", LAST, CHOSEN}
    for _, part in results.groupby("row"):
        by_epoch = part.pivot_table(index="test", columns="epoch", values="value")
        assert by_epoch.loc["1:5", "2"] == by_epoch.loc["1:5", LAST]
        validation = by_epoch.loc["validation"]
        assert validation[CHOSEN] == max(validation["1"], validation["2"])
        chosen = str(int(by_epoch.loc["epoch", CHOSEN]))
        assert validation[chosen] == validation[CHOSEN]
        assert by_epoch.loc["1:5", chosen] == by_epoch.loc["1:5", CHOSEN]
    probed = results[results["test"] == "cosine_level_penalty"]
    assert set(probed["row"]) == {"pfdl"}
    assert probed["value"].between(-1, 1).all()


def test_a_control_is_switched_off_after_its_share_of_the_epochs(digits, task, monkeypatch):
    weights = []
    original = CovarianceDecorrelation.forward

    def note(self, features):
        weights.append(self.weight)
        return original(self, features)

    monkeypatch.setattr(CovarianceDecorrelation, "forward", note)
    values = task("covariance-third", digits, epochs=3, test_every=1, batch_size=100)
    assert weights == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert ("1", "matched_weight") in values


def test_the_network_and_the_size_of_a_row_count_more_than_those_of_the_experiment(
    tiny, tmp_path, monkeypatch
):
    made = []
    monkeypatch.setattr(
        run,
        "make_network",
        lambda name, inputs, classes, **_: made.append((name, inputs.shape[-1])),
    )
    monkeypatch.setattr(run, "train_row", lambda *_, **__: {})
    monkeypatch.setattr(testing.Tester, "finish", lambda *_: None)
    monkeypatch.setattr(
        TinySource,
        "load",
        lambda self, path, size, _: torch.zeros(3, size, size, dtype=torch.uint8),
    )
    run.run(dataclasses.replace(TINY, rows=("cn", "erm"), seeds=1), [tiny], tmp_path)
    assert made == [("cn", 64), ("mlp", 8)]


@pytest.mark.parametrize("select", ["accuracy", "worst-group"])
def test_the_rule_says_what_chooses_an_epoch(digits, task, select, monkeypatch):
    seen = []
    original = testing.Tester._validate

    def watch(self, progress):
        predicted = testing.predict_classes(progress.model, self.validation.inputs)
        _, labels, contexts = self.validation
        right = float((predicted == labels).double().mean())
        seen.append(
            right if select == "accuracy" else worst_group_accuracy(predicted, labels, contexts)
        )
        return original(self, progress)

    monkeypatch.setattr(testing.Tester, "_validate", watch)
    values = task("balance-known", digits, epochs=3, select=select, validation=0.1)
    assert values[CHOSEN, "validation"] == pytest.approx(100 * max(seen))
    assert {(CHOSEN, SHIFTED), (CHOSEN, SAME), (LAST, SHIFTED)} <= set(values)
    assert len(seen) == 3


def test_images_without_contexts_get_a_plain_split_and_no_oracles(tmp_path, monkeypatch):
    monkeypatch.setattr(
        inferred,
        "find_contexts",
        lambda features, labels, **_: InferredContexts(
            (labels.numpy() + 1) % 2, "pooled", "Found.", ()
        ),
    )
    photos = make_folder(tmp_path / "photos", {"cat": 30, "dog": 30})
    result = study(tmp_path / "out", photos, "--rows erm,balance,balance-known")
    assert f"{photos} has no contexts; left out there: balance-known." in result.output
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert set(results["row"]) == {"erm", "balance"}
    assert {"whole", "worst class"} <= set(results["test"])
    assert run.AGREEMENT not in set(results["test"])  # with what?
    assert "true contexts not known" in (tmp_path / "out" / "table.md").read_text()


def test_a_table_of_images_with_sets_of_its_own_is_tested_on_its_test_set(tmp_path):
    photos = make_folder(tmp_path / "photos", {"a": 24})
    lines = ["file,what,where,part"]
    for number in range(24):
        what = ("dog", "cat")[number % 2]
        where = ("sand", "sea", "sea")[number % 3]
        part = 2 * (number > 11)
        lines.append(f"a/{number:03d}.png,{what},{where},{part}")
    table = photos / "images.csv"
    table.write_text("\n".join(lines))
    columns = "--columns path=file,label=what,context=where,split=part"
    study(tmp_path / "out", table, f"{columns} --rows erm,groupdro-known")
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert set(results["data"]) == {"images"}
    assert set(results["row"]) == {"erm", "groupdro-known"}
    assert set(results["test"]) == {"whole", "worst group", run.ESS}


def test_what_cannot_be_split_is_refused_before_anything_is_written(tmp_path):
    photos = make_folder(
        tmp_path / "photos", {"cat/sea": 3, "cat/sand": 3, "dog/sea": 3, "dog/sand": 3}
    )
    plain = make_folder(tmp_path / "plain", {"cat": 4, "dog": 4})
    mistakes = {
        (photos, "erm"): "can be read in two ways",
        (
            photos,
            "erm --layout class/context",
        ): "there are too few images for a training set at 5:1",
        (plain, "balance-known"): "has no contexts, which balance-known needs",
    }
    for (folder, rows), message in mistakes.items():
        assert message in study(tmp_path / "out", folder, f"--rows {rows}", fails=True).output
        assert not (tmp_path / "out").exists()


def test_a_training_that_diverges_is_a_result_too(digits, tmp_path):
    config = ImagesConfig(("erm", "pfdl"), seeds=2, epochs=2, learning_rate=1e30)
    results = run.run(config, [digits], tmp_path)
    assert results[results["test"] == run.DIVERGED].groupby("row").size().to_dict() == {
        "erm": 2,
        "pfdl": 2,
    }
    assert results["value"].notna().all()


def test_the_command_prints_ours_beside_the_papers(tiny, tmp_path, monkeypatch):
    """By its defaults, which are the paper's protocol; the networks are small, and stay
    untrained.
    """
    small = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2)
    )
    monkeypatch.setattr(run, "make_network", lambda *_, **__: small)
    monkeypatch.setattr(run, "train_row", lambda *_, **__: {})
    monkeypatch.setattr(
        TinySource,
        "load",
        lambda self, path, size, _: torch.zeros(3, size, size, dtype=torch.uint8),
    )
    result = typed(f"reproduce nico shapes --seeds 2 --device cpu -o {tmp_path}")
    lines = result.stdout.splitlines()
    assert lines[0] == "**Accuracy in percent at the last epoch, shapes, resnet50**"
    printed = [
        number
        for number, line in enumerate(lines)
        if line.startswith("| *in the paper, on NICO* |")
    ]
    assert {lines[number - 1].split(" | ")[0] for number in printed} == {
        f"| {row.title}" for row in PAPER.values()
    }
    assert "| 41.31 | 41.41 | 43.70 | 47.46 | 46.80 | 49.29 | 50.87 |" in lines[printed[-1]]
    assert "PFDL − ERM" in result.stdout
    assert "| PFDL | 2 |" in (tmp_path / "table.md").read_text()
