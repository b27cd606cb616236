import dataclasses
import sys

import pandas as pd
import pytest
import torch
from lab.tests.report.made_up import write_config
from tests.vision.tiny_images import TinySource
from typer.testing import CliRunner

from pfdl._internal.state import load_state
from pfdl.cli.main import app
from pfdl.vision.resume import STATE, TrainingStoppedError
from pfdl.vision.seeds import read_split
from pfdl_lab.contexts import run as contexts
from pfdl_lab.contexts.rows import RATIOS, ROWS
from pfdl_lab.contexts.run import ContextsConfig, Images
from pfdl_lab.reporting import write_tables

TINY = ContextsConfig(
    resnet="resnet18", small_stem=False, image_size=8, epochs=1, decay_every=1, batch_size=16, seeds=2
)
TINY = dataclasses.replace(TINY, rows=("resnet", "pfdl"))


@pytest.fixture
def tiny(monkeypatch):
    """Tiny images, and perceptrons in the place of CN and ResNet."""
    monkeypatch.setattr(Images, "open", lambda self, *_: TinySource())
    small = {key: dataclasses.replace(row, backbone="mlp") for key, row in ROWS.items() if key in ("resnet", "pfdl")}
    monkeypatch.setattr(contexts, "ROWS", small)
    return small


def test_every_row_of_a_seed_is_trained_on_the_same_split_and_tested_at_seven_ratios(tiny, tmp_path, monkeypatch):
    loaded, load = [], TinySource.load
    monkeypatch.setattr(TinySource, "load", lambda self, path, *rest: loaded.append(path) or load(self, path, *rest))
    results = contexts.run(TINY, Images(), tmp_path)
    assert sorted(loaded) == [sample.path for sample in TinySource().samples]  # once, for all trainings and tests
    assert not (tmp_path / "images").exists()
    assert set(results["test"]) == {*RATIOS, "all", "worst group"}
    counts = results.groupby(["row", "seed"]).size()
    assert dict(counts) == {(row, seed): 9 for row in tiny for seed in (0, 1)}
    assert results.groupby("seed")["split"].nunique().tolist() == [1, 1]
    assert results["split"].nunique() == 2
    assert pd.read_csv(tmp_path / "results.csv").shape == (36, 4)
    states = [load_state(path) for path in (tmp_path / "runs").glob(f"*/*/{STATE}")]
    assert len(states) == 4
    assert all(state["finished"] and "module" not in state for state in states)  # the large part is gone


def test_paired_rows_start_from_the_same_weights(tiny, tmp_path, monkeypatch):
    first_weights = {}
    original = contexts.train

    def spy(config, *args, **kwargs):
        from pfdl.vision import training

        make = training._make_classifier

        def remember(*inner):
            model = make(*inner)
            first_weights[config.objective, config.seed] = model.backbone[1].weight.detach().clone()
            return model

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "_make_classifier", remember)
            return original(config, *args, **kwargs)

    monkeypatch.setattr(contexts, "train", spy)
    contexts.run(TINY, Images(), tmp_path)
    assert torch.equal(first_weights["erm", 0], first_weights["pfdl", 0])
    assert not torch.equal(first_weights["erm", 0], first_weights["erm", 1])


def test_a_finished_experiment_is_not_trained_again_and_a_stopped_one_goes_on(tiny, tmp_path, monkeypatch):
    original, calls = contexts.train, []

    def stop_at_third(training, *args, **kwargs):
        calls.append(training.objective)
        if len(calls) == 3:
            raise TrainingStoppedError("stopped")
        return original(training, *args, **kwargs)

    monkeypatch.setattr(contexts, "train", stop_at_third)
    with pytest.raises(TrainingStoppedError):
        contexts.run(TINY, Images(), tmp_path)
    first = contexts.run(TINY, Images(), tmp_path)
    assert len(calls) == 5  # two done, one stopped, two more
    pd.testing.assert_frame_equal(contexts.run(TINY, Images(), tmp_path), first)
    assert len(calls) == 5


def test_too_few_images_are_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(Images, "open", lambda self, *_: TinySource(per_cell=10))
    with pytest.raises(ValueError, match="There is no test set at"):
        contexts.run(TINY, Images(), tmp_path)


def test_the_source_is_the_shapes_or_the_folder(tmp_path):
    assert Images().open(ContextsConfig(per_cell=3)).per_cell == 3
    assert Images(str(tmp_path)).open(ContextsConfig()).root == tmp_path


def made_up_results():
    """ResNet rows: seed s, ratio number k: 50 + k + s; PFDL 2 + s points above; the rest 40."""
    tests = (*RATIOS, "all", "worst group")
    gain = {"resnet": (0.0, 0.0), "pfdl": (2.0, 3.0)}
    return pd.DataFrame(
        [
            {"row": row, "seed": s, "test": test, "accuracy": 50 + k + s + gain[row][s] if row in gain else 40.0}
            for row in ROWS
            for s in (0, 1)
            for k, test in enumerate(tests)
        ]
    )


def page_of(place, results, **settings):
    write_config(place, "contexts", {"folder": None, "seeds": 2, "epochs": 160, "resnet": "resnet50", **settings})
    results.to_csv(place / "results.csv", index=False)
    return write_tables(place), (place / "table.md").read_text()


def test_the_report_has_ours_the_papers_and_paired_differences(tmp_path):
    files, text = page_of(tmp_path, made_up_results(), command="pfdl reproduce contexts")
    assert "| ResNet (ERM) | 50.5 ± 0.5 | 51.5 ± 0.5" in text
    assert "| ResNet, PFDL − ResNet (ERM) | +2.5 ± 0.5" in text
    assert (
        "| *in the paper, on NICO* | 41.31 | 41.41 | 43.70 | 47.46 | 46.80 | 49.29 | 50.87 | not in the paper |" in text
    )
    assert "| *in the paper, on NICO* | 37.17 | not in the paper | 37.80 |" in text
    assert "(not NICO)" in text
    assert "Not the paper's schedule" not in text
    assert [path.name for path in files[:2]] == ["results.csv", "table.md"]
    assert files[2].suffix == ".png"
    assert files[2].stat().st_size > 0


def test_a_folder_is_named_and_another_schedule_is_said(tmp_path):
    _, text = page_of(tmp_path, made_up_results(), folder=str(tmp_path / "NICO"), superclass="Animal", epochs=3)
    assert "the folder NICO, Animal." in text
    assert "Not the paper's schedule" in text


def test_the_command(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(contexts, "QUICK", TINY)
    runner = CliRunner()
    arguments = ["reproduce", "contexts", "--quick", "--seeds", "2", "-o", str(tmp_path / "out"), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pfdl", "reproduce", "contexts", "--quick", "--seeds", "2"])
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "table.md" in result.output
    assert "`pfdl reproduce contexts --quick --seeds 2`" in (tmp_path / "out" / "table.md").read_text()
    wrong = runner.invoke(app, [*arguments[:3], "--precision", "8", "-o", str(tmp_path / "other")])
    assert wrong.exit_code == 2
    assert "precision is '8'" in wrong.output

    def stopped(*args, **kwargs):
        raise TrainingStoppedError("Stopped. The same command goes on.")

    monkeypatch.setattr(contexts, "run", stopped)
    assert runner.invoke(app, arguments).exit_code == 130


def test_rows_know_their_baselines():
    for row in ROWS.values():
        if row.baseline is not None:
            assert ROWS[row.baseline].backbone == row.backbone
            assert ROWS[row.baseline].objective == "erm"
        assert row.paper is None or len(row.paper) == len(RATIOS)


def test_rows_that_were_not_run_have_no_figures_and_no_differences(tmp_path):
    results = made_up_results()
    _, text = page_of(tmp_path, results[results["row"].isin(["dwr", "cn"])], rows=["dwr", "cn", "stablenet"])
    assert "| ResNet, DWR | 40.0" in text
    assert "| ResNet, StableNet | not run" in text
    assert "CNBB" not in text  # not planned
    assert "ResNet, DWR − " not in text  # there is nothing to subtract


def test_an_unknown_row_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="the row is 'resnet51'; choose one of"):
        contexts.run(dataclasses.replace(TINY, rows=("resnet51",)), Images(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_images_of_one_group_stay_on_one_side(tiny, tmp_path):
    source = TinySource()
    groups = {sample.path: f"group {number // 2}" for number, sample in enumerate(source.samples)}
    (tmp_path / "groups.csv").write_text("path,place\n" + "".join(f"{p},{g}\n" for p, g in groups.items()))
    contexts.run(
        dataclasses.replace(TINY, rows=("resnet",)),
        Images(group_by=f"{tmp_path / 'groups.csv'}:place"),
        tmp_path / "out",
    )
    manifest = read_split(tmp_path / "out", 0)
    train = {groups[row.path] for row in manifest.rows_of("train")}
    assert train
    assert not train & {groups[row.path] for row in manifest.rows_of("test-1:1")}
