"""A study: paired seeds on every data set, kept cell by cell."""

import dataclasses
import re

import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.data.image_files import make_folder
from typer.testing import CliRunner

import pfdl
from pfdl._internal.runs import read_run
from pfdl.cli.main import app
from pfdl.contexts import InferredContexts, image_statistics
from pfdl.data.stored import store_images
from pfdl.objectives import make_objective, registry
from pfdl.objectives.penalties import Penalty
from pfdl.objectives.weightings import Weighting
from pfdl_lab.cli.study import make_study_data
from pfdl_lab.reporting import write_tables
from pfdl_lab.study import data as study_data
from pfdl_lab.study import inferred
from pfdl_lab.study import run as study
from pfdl_lab.study.data import SAME, SHIFTED, TESTS, StudyData
from pfdl_lab.study.rows import EARLIER, FACTORS, ROWS, find_row
from pfdl_lab.study.run import StudyConfig
from pfdl_lab.study.section import build


@pytest.fixture
def digits(monkeypatch):
    monkeypatch.setattr(study_data, "COLORED_DIGITS", 200)
    monkeypatch.setattr(study_data, "HIDDEN_WIDTH", 16)
    return StudyData("colored-mnist")


@pytest.fixture
def folder(tmp_path):
    """Two classes in three contexts, and made-up features of every image."""
    generator = torch.Generator().manual_seed(0)
    root, paths = tmp_path / "pets", []
    for name in ("cat", "dog"):
        for context in ("grass", "sand", "snow"):
            (root / name / context).mkdir(parents=True)
            for number in range(15):
                path = root / name / context / f"{number:02}.png"
                Image.fromarray(torch.randint(256, (8, 8, 3), generator=generator).byte().numpy()).save(path)
                paths.append(path.relative_to(root).as_posix())
    save_file({"features": torch.randn(len(paths), 12, generator=generator).half()}, tmp_path / "pets.safetensors")
    (tmp_path / "pets.txt").write_text("\n".join(paths))
    return root


def test_every_row_makes_an_objective_and_has_a_baseline():
    baselines = {row.baseline for row in ROWS.values()}
    for row in ROWS.values():
        assert make_objective(row.objective, 8, **row.settings) is not None
        assert row.contexts in ("hidden", "one", "inferred", "errors", "known")
        assert make_objective(row.objective, 8).needs_contexts <= (row.contexts != "hidden")
    for key in set(FACTORS) - baselines - set(EARLIER):
        baseline = ROWS[ROWS[key].baseline]
        assert (baseline.objective, baseline.batch_size, baseline.width) == (
            "erm",
            ROWS[key].batch_size,
            ROWS[key].width,
        )


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


@pytest.fixture
def made_up_objectives(monkeypatch):
    """Two objectives that a stranger registered; gone after the test."""
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    pfdl.register_objective("made-up", Shrink)
    pfdl.register_objective("asks", Ask)


def test_an_objective_that_a_stranger_registered_is_a_row(made_up_objectives, digits, tmp_path, monkeypatch):
    """Nothing else changes: its name is a key, its contexts are inferred if it reads contexts."""
    assert (find_row("made-up").contexts, find_row("asks").contexts) == ("hidden", "inferred")
    arguments = ["study", "colored-mnist", "--rows", "erm,made-up,asks,irm+made-up", "--seeds", "2", "--epochs", "1"]
    result = CliRunner().invoke(app, [*arguments, "--device", "cpu", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    results = pd.read_csv(tmp_path / "results.csv")
    assert set(results["row"]) == {"erm", "made-up", "asks", "irm+made-up"}
    page = (tmp_path / "table.md").read_text()
    for row in ("made-up", "asks", "irm+made-up"):
        assert f"| {row} | 2 |" in page
    table = CliRunner().invoke(app, ["study-table", str(tmp_path / "results.csv"), "--rows", "made-up"])
    assert table.exit_code == 0, table.output
    assert "| made-up |" in table.output


def test_colored_digits_have_two_tests_and_go_on_after_a_stop(digits, tmp_path):
    config = StudyConfig(rows=("erm", "balance-known"), seeds=2, epochs=1)
    first = study.run(dataclasses.replace(config, rows=("erm",)), [digits], tmp_path)
    cells = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    both = study.run(config, [digits], tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}.items() >= cells.items()
    assert set(both["test"]) == {SHIFTED, SAME, study.ESS}
    assert both.groupby(["row", "seed"]).size().tolist() == [3] * 4
    pd.testing.assert_frame_equal(first.reset_index(drop=True), both[both["row"] == "erm"].reset_index(drop=True))
    assert pd.read_csv(tmp_path / "results.csv").columns.tolist() == ["dataset", "row", "seed", "test", "value"]


def test_the_report_reads_a_study_that_was_stopped(digits, tmp_path):
    study.run(StudyConfig(rows=("balance-known", "erm"), seeds=2, epochs=1), [digits], tmp_path)
    (tmp_path / "results.csv").unlink()
    problems = []
    section = build(read_run(tmp_path), problems)
    assert problems == []
    table = next(
        block for block in section.blocks if getattr(block, "caption", "") == "Accuracy in percent, colored-mnist"
    )
    assert [row.header for row in table.rows] == ["ERM", "balance, true contexts (oracle)"]


def test_a_folder_is_trained_on_pixels_or_on_stored_features(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(study_data, "IMAGE_SIZE", 8)
    images = store_images(StudyData(str(folder)).open(), tmp_path / "images", 8)
    pixels = StudyData(str(folder)).split(0, images)
    assert pixels.train.inputs.dtype == torch.uint8
    assert list(pixels.tests) == list(TESTS)
    stored = StudyData(str(folder), features=str(folder.with_suffix(".safetensors"))).split(0, images)
    torch.testing.assert_close(stored.train.inputs.mean(0), torch.zeros(12), atol=1e-5, rtol=0)
    assert torch.equal(stored.train.labels, pixels.train.labels)
    assert torch.equal(stored.train.contexts, pixels.train.contexts)
    assert stored.make_model(None)(stored.train.inputs).shape == (len(stored.train.labels), 2)
    assert pixels.make_model(4).fc[-1].in_features == 4
    assert torch.equal(stored.context_features(), stored.train.inputs)
    assert torch.equal(pixels.context_features(), image_statistics(pixels.train.inputs))


@pytest.fixture
def small(monkeypatch):
    """Pictures so small that a perceptron in the place of a ResNet trains on them at once."""
    monkeypatch.setattr(study_data, "IMAGE_SIZE", 8)


def accuracies_of(results):
    return list(dict.fromkeys(test for test in results["test"] if test not in study.NOT_ACCURACY))


def test_images_without_contexts_get_a_plain_split_and_plain_metrics(small, tmp_path, monkeypatch):
    monkeypatch.setattr(
        inferred,
        "find_contexts",
        lambda features, labels, **_: InferredContexts((labels.numpy() + 1) % 2, "pooled", "Found.", ()),
    )
    photos = make_folder(tmp_path / "photos", {"cat": 30, "dog": 30})
    arguments = ["study", str(photos), "--backbone", "mlp", "--rows", "erm,balance,balance-known", "--seeds", "2"]
    result = CliRunner().invoke(app, [*arguments, "--epochs", "1", "--device", "cpu", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert f"{photos} has no contexts; left out there: balance-known." in result.output
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert set(results["row"]) == {"erm", "balance"}
    assert accuracies_of(results) == ["test", "worst class"]
    assert study.AGREEMENT not in set(results["test"])  # with what?
    page = (tmp_path / "out" / "table.md").read_text()
    assert "On the test images" in page
    assert "where contexts shift most" not in page
    assert "true contexts not known" in page
    assert not (tmp_path / "out" / "images").exists()


def test_a_table_of_images_with_sets_of_its_own_is_tested_on_its_test_set(small, tmp_path):
    photos = make_folder(tmp_path / "photos", {"a": 24})
    lines = ["file,what,where,part"]
    for number in range(24):
        what, where, part = ("dog", "cat")[number % 2], ("sand", "sea", "sea")[number % 3], 2 * (number > 11)
        lines.append(f"a/{number:03d}.png,{what},{where},{part}")
    table = photos / "images.csv"
    table.write_text("\n".join(lines))
    columns = ["--path-column", "file", "--label-column", "what", "--context-column", "where", "--split-column", "part"]
    arguments = ["study", str(table), *columns, "--backbone", "mlp", "--rows", "erm,groupdro-known", "--seeds", "2"]
    result = CliRunner().invoke(app, [*arguments, "--epochs", "1", "--device", "cpu", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    results = pd.read_csv(tmp_path / "out" / "results.csv")
    assert set(results["dataset"]) == {"images, mlp"}
    assert set(results["row"]) == {"erm", "groupdro-known"}
    assert accuracies_of(results) == ["test", "worst group"]


def test_what_cannot_be_split_is_refused_before_anything_is_written(tmp_path):
    photos = make_folder(tmp_path / "photos", {"cat/sea": 3, "cat/sand": 3, "dog/sea": 3, "dog/sand": 3})
    result = CliRunner().invoke(app, ["study", str(photos), "--rows", "erm", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "there are too few images for a training set at 5:1" in result.output
    plain = make_folder(tmp_path / "plain", {"cat": 4, "dog": 4})
    result = CliRunner().invoke(app, ["study", str(plain), "--rows", "balance-known", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "has no contexts, which balance-known needs" in result.output
    assert not (tmp_path / "out").exists()


def test_inferred_contexts_are_counted_and_compared_with_the_true_ones(digits, monkeypatch):
    monkeypatch.setattr(study_data, "COLORED_DIGITS", 1200)  # fewer confirm nothing
    how = {"device": "cpu", "images": {}, "epochs": 1, "learning_rate": 0.01}
    lines = study.run_task("balance", 0, **how, **digits.task)
    values = {line["test"]: line["value"] for line in lines}
    assert values[study.NUMBER] == 2  # two colours
    assert values[study.AGREEMENT] == 1.0
    hidden = study.run_task("erm", 0, **how, **digits.task)
    assert study.NUMBER not in {line["test"] for line in hidden}


def test_a_training_that_diverges_is_a_result_too(digits, tmp_path):
    results = study.run(StudyConfig(rows=("erm", "pfdl"), seeds=2, epochs=2, learning_rate=1e30), [digits], tmp_path)
    assert results[results["test"] == study.DIVERGED].groupby("row").size().to_dict() == {"erm": 2, "pfdl": 2}
    assert results["value"].notna().all()
    write_tables(tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert re.search(r"\| PFDL \| \+0\.00 ± 0\.00, 2 diverged \|", text)
    assert re.search(r"\| PFDL \| 2 \| [0-9.]+ \| \+0\.00 ± 0\.00, p = 1, 2 diverged \|", text)


def test_only_an_oracle_sees_the_true_contexts(digits, monkeypatch):
    split = digits.split(0)
    for told, expected in (("hidden", {-1}), ("one", {0}), ("known", {0, 1})):
        assert set(study._environments(told, digits, split, 0, {}, None).tolist()) == expected
    blind = split._replace(train=split.train._replace(contexts=torch.full_like(split.train.contexts, 9)))
    seeing = inferred.infer_task("inferred", 0, images={}, **digits.task)
    monkeypatch.setattr(StudyData, "split", lambda *_: blind)
    assert inferred.infer_task("inferred", 0, images={}, **digits.task) == seeing


def test_the_backgrounds_of_the_shapes_can_be_weaker():
    assert StudyData("shapes-0.5").open().strength == 0.5
    assert [StudyData(name).is_generated for name in ("shapes", "colored-mnist", "shapes/x")] == [True, True, False]


def test_the_command(digits, tmp_path):
    arguments = ["study", "colored-mnist", "--rows", "erm,pfdl", "--seeds", "2", "--epochs", "1"]
    arguments += ["--device", "cpu", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "| PFDL | 2 |" in (tmp_path / "out" / "table.md").read_text()


def test_a_folder_is_grouped_by_its_path_or_its_name():
    def grouped(*group_by):
        places = make_study_data(["shapes", "data/pets", "other/pacs"], [], group_by, None, "resnet18")
        return [place.group_by for place in places]

    assert grouped("pets=meta.csv:place") == grouped("data/pets=meta.csv:place") == [None, "meta.csv:place", None]
    with pytest.raises(ValueError, match="--group-by birds=a:b names no folder of the study"):
        grouped("birds=a:b")
    with pytest.raises(ValueError, match="--group-by pets=m:a names several folders of the study"):
        make_study_data(["a/pets", "b/pets"], [], ["pets=m:a"], None, "resnet18")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["colored-mnist", "--rows", "magic"], "the row is 'magic'"),
        (["colored-mnist", "--features", "x.safetensors"], "there are 0 folders and 1 --features"),
        (["colored-mnist", "--group-by", "meta.csv:place"], "names no folder of the study"),
        (["no-such-folder"], "there is no folder no-such-folder"),
    ],
)
def test_mistakes_get_a_sentence(arguments, message, tmp_path):
    result = CliRunner().invoke(app, ["study", *arguments, "--device", "cpu", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.output
