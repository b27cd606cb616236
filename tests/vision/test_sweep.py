"""A sweep: every candidate validated, one chosen, that one alone tested."""

import json
import re
import shutil

import pandas as pd
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import TPESampler

from pfdl.data import make_split, read_manifest
from pfdl.vision import SweepConfig, TrainingStoppedError, sweeping
from pfdl.vision.evaluation import read_evaluations
from tests.cli.typing_commands import typed
from tests.data.image_files import make_folder
from tests.vision.tiny_images import TinySource

GRID = {
    "backbone": ["mlp"],
    "image_size": [8],
    "epochs": [2],
    "batch_size": [16],
    "objective": ["erm"],
    "learning_rate": [0.01, 1e30, 0.05],
}
CONFIG = SweepConfig(GRID, "worst-class", seeds=2)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "run"
    return folder, *sweeping.sweep(CONFIG, TinySource(), folder, ratio="2:1")


def test_the_highest_validation_score_is_chosen_and_a_training_that_diverges_is_a_result(swept):
    folder, results, choice = swept
    assert results["user_attrs_candidate"].tolist() == [
        f"learning_rate={rate}" for rate in ("0.01", "1e+30", "0.05")
    ]
    assert results["state"].tolist() == ["COMPLETE", "FAIL", "COMPLETE"]
    assert re.search("diverged|finite", results["user_attrs_reason"][1])
    assert choice["candidate"] == results["user_attrs_candidate"][results["value"].idxmax()]
    assert choice["settings"]["learning_rate"] == float(choice["candidate"].partition("=")[2])
    assert json.loads((folder / "chosen.json").read_text())["candidate"] == choice["candidate"]
    mine = results.set_index("user_attrs_candidate").loc[choice["candidate"]]
    for seed, place in enumerate(choice["folders"]):
        logged = pd.read_csv(folder / place / "metrics.csv")["val_worst_class"]
        assert mine[f"intermediate_values_{seed}"] == pytest.approx(100 * logged.max())
    assert choice["validation"] == pytest.approx(mine.filter(like="intermediate_values").mean())


def test_only_the_chosen_candidate_is_tested(swept):
    folder, _, choice = swept
    tested = {
        path.parents[1].relative_to(folder).as_posix()
        for path in folder.glob("runs/*/*/evaluations/test.json")
    }
    assert tested == set(choice["folders"])
    shares = [read_evaluations(folder / place)["test"].overall for place in choice["folders"]]
    assert choice["test"]["all"][0] == pytest.approx(50 * sum(shares))
    assert "float64" not in repr(choice)
    assert {"all", "worst group", "1:1"} <= set(choice["test"])
    assert not (
        folder / "images"
    ).exists()  # the decoded images are kept while trainings need them only


def test_a_finished_sweep_trains_nothing_again(swept, monkeypatch):
    folder, results, choice = swept
    monkeypatch.setattr(sweeping, "train", None)
    again, same = sweeping.sweep(CONFIG, TinySource(), folder, ratio="2:1")
    pd.testing.assert_frame_equal(again, results)
    assert same == choice


def test_a_stopped_sweep_resumes_and_ends_the_same(swept, tmp_path, monkeypatch):
    _, results, choice = swept
    train = sweeping.train
    calls = []

    def stop_at_second(*arguments, **settings):
        calls.append(arguments)
        if len(calls) == 2:
            raise TrainingStoppedError("stopped")
        return train(*arguments, **settings)

    monkeypatch.setattr(sweeping, "train", stop_at_second)
    with pytest.raises(TrainingStoppedError):
        sweeping.sweep(CONFIG, TinySource(), tmp_path / "run", ratio="2:1")
    again, same = sweeping.sweep(CONFIG, TinySource(), tmp_path / "run", ratio="2:1")
    # Each of the two that do not diverge twice, one that diverges once, one stopped, and one is
    # found to be finished
    assert len(calls) == 7
    pd.testing.assert_frame_equal(again, results)
    assert same == choice


@pytest.mark.parametrize(
    ("name", "damage", "is_set_aside"),
    [
        ("study.log", lambda log: log[:-9], False),
        ("study.log", lambda log: log[:400] + log[500:], False),
        ("trials.json", lambda trials: trials[:-9], True),
        ("trials.json", lambda trials: trials.replace("0.05", "0.06"), True),
        ("trials.json", lambda trials: trials.replace("scores", "score"), True),
        ("trials.json", lambda trials: "7", True),
    ],
)
def test_a_sweep_with_a_damaged_file_ends_the_same(name, damage, is_set_aside, swept, tmp_path):
    folder = shutil.copytree(swept[0], tmp_path / "run")
    damaged = folder / name
    damaged.write_text(damage(damaged.read_text()))
    again, same = sweeping.sweep(CONFIG, TinySource(), folder, ratio="2:1")
    pd.testing.assert_frame_equal(again, swept[1])
    assert same == swept[2]
    assert (folder / f"{name}.damaged").exists() == is_set_aside


def test_another_grid_or_rule_is_another_sweep(swept):
    folder, _, _ = swept
    for config in (
        SweepConfig({**GRID, "epochs": [3]}, "worst-class", 2),
        SweepConfig(GRID, "accuracy", 2),
    ):
        with pytest.raises(ValueError, match="holds another run"):
            sweeping.sweep(config, TinySource(), folder, ratio="2:1")


def test_trials_are_proposed_within_ranges_and_more_can_be_added(tmp_path):
    space = {**GRID, "learning_rate": FloatDistribution(0.001, 0.1), "epochs": [1]}
    results, _ = sweeping.sweep(
        SweepConfig(space, seeds=1, trials=2), TinySource(), tmp_path / "run", ratio="2:1"
    )
    more, choice = sweeping.sweep(
        SweepConfig(space, seeds=1, trials=3), TinySource(), tmp_path / "run", ratio="2:1"
    )
    rates = more["params_learning_rate"]
    assert len(rates) == 3
    assert rates.between(0.001, 0.1).all()
    pd.testing.assert_frame_equal(more[:2], results)
    assert choice["settings"]["learning_rate"] in set(rates)


def test_trials_that_are_lost_are_those_of_the_trainings(tmp_path, monkeypatch):
    space = {**GRID, "learning_rate": FloatDistribution(0.001, 0.1), "epochs": [1]}
    config = SweepConfig(space, seeds=1, trials=2)
    results, choice = sweeping.sweep(config, TinySource(), tmp_path / "run", ratio="2:1")
    (tmp_path / "run" / "trials.json").write_text("damaged\n")
    monkeypatch.setattr(sweeping, "TPESampler", lambda seed: TPESampler(seed=seed + 5))
    again, same = sweeping.sweep(config, TinySource(), tmp_path / "run", ratio="2:1")
    pd.testing.assert_frame_equal(again, results)
    assert same["candidate"] == choice["candidate"]


def test_a_candidate_that_is_proposed_again_is_not_trained_again(tmp_path):
    space = {**GRID, "learning_rate": [0.05], "pfdl.weight": [1, 2]}
    results, _ = sweeping.sweep(
        SweepConfig(space, seeds=1, trials=2), TinySource(), tmp_path / "run", ratio="2:1"
    )
    assert results["state"].tolist() == ["COMPLETE", "FAIL"]
    assert results["user_attrs_reason"][1] == "it was proposed before"


def test_a_candidate_that_is_behind_in_three_seeds_is_not_trained_on_a_fourth(
    tmp_path, monkeypatch
):
    trained = []

    def score(config, select, folder, output, device):
        trained.append(config.learning_rate)
        return 90.0 + config.seed if config.learning_rate == 0.1 else 10.0

    monkeypatch.setattr(sweeping, "_validate", score)
    monkeypatch.setattr(sweeping, "_test_best", lambda study, *_: study.best_params)
    space = {**GRID, "learning_rate": [0.1, 0.01]}
    results, choice = sweeping.sweep(
        SweepConfig(space, seeds=4), TinySource(), tmp_path / "run", ratio="2:1"
    )
    assert choice["learning_rate"] == 0.1
    assert trained.count(0.01) == 3
    assert results["value"].tolist() == [91.5, 10.0]


def test_a_context_that_is_left_out_is_tested_on_and_no_test_image_plays_a_part():
    split = make_split(TinySource(), ratio="2:1")
    part = sweeping._leave_out(split, "red")
    assert {row.context for row in part.rows_of("test")} == {"red"}
    assert {row.context for row in part.rows if row.side == "train"} == {"blue"}
    training = {row.path for row in split.rows if row.sets and row.side == "train"}
    assert {row.path for row in part.rows} == training


LEAVING_OUT = SweepConfig(
    {**GRID, "learning_rate": [1e-9, 0.05], "epochs": [6]}, sweeping.LEAVE_OUT, seeds=1
)


def test_leaving_out_one_context_after_the_other_chooses(tmp_path):
    results, choice = sweeping.sweep(LEAVING_OUT, TinySource(), tmp_path / "run", ratio="2:1")
    best = results["user_attrs_candidate"][results["value"].idxmax()]
    assert choice["candidate"] == best == "learning_rate=0.05"
    folder = tmp_path / "run" / choice["folders"][0]
    left_out = [read_evaluations(f"{folder}-without-{number}")["test"] for number in range(2)]
    assert [list(one.by_context) for one in left_out] == [["blue"], ["red"]]
    assert choice["validation"] == pytest.approx(50 * sum(one.overall for one in left_out))
    # At the end it is trained on all contexts
    assert read_manifest(folder / "manifest.csv") == make_split(TinySource(), ratio="2:1")
    assert choice["test"]["all"][0] > 80


def test_without_contexts_none_can_be_left_out(tmp_path):
    with pytest.raises(ValueError, match="not of several known contexts"):
        sweeping.sweep(LEAVING_OUT, TinySource(contexts=("",)), tmp_path / "other")


def test_if_every_candidate_fails_the_sweep_says_why(tmp_path):
    config = SweepConfig({**GRID, "learning_rate": [1e30]}, seeds=1)
    with pytest.raises(
        ValueError, match=r"every candidate .* failed; the first one because .*(diverged|finite)"
    ):
        sweeping.sweep(config, TinySource(), tmp_path / "run", ratio="2:1")


@pytest.mark.parametrize(
    ("grid", "select", "message"),
    [
        ({"objective": ["groupdro"]}, "accuracy", "the objective 'groupdro' needs contexts"),
        ({}, "worst-group", "the selection by 'worst-group' needs contexts"),
        ({"objective": ["magic"]}, "accuracy", "'magic' in the objective 'magic' is unknown"),
        ({}, "best", "select is 'best'"),
        ({"seed": [0, 1]}, "accuracy", "the space has 'seed'; give seeds="),
        ({"label_smoothing": [1]}, "accuracy", "label_smoothing is 1; it must be below 1"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    grid, select, message, tmp_path
):
    with pytest.raises(ValueError, match=message):
        sweeping.sweep(SweepConfig(grid, select), TinySource(), tmp_path / "run", ratio="2:1")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("children_uncounted")
def test_the_command_tries_several_at_a_time_on_images_without_contexts(tmp_path):
    photos = make_folder(tmp_path / "photos", {"cat": 20, "dog": 20})
    fixed = "-b mlp --image-size 8 --set epochs=1 --batch-size 8 --seeds 1 --device cpu"
    result = typed(f"sweep {photos} {fixed} --objective erm,pfdl --jobs 2 -o {tmp_path / 'run'}")
    assert "Candidates: 2; seeds: 1.\n1 of 2 candidates: objective=" in result.output
    choice = json.loads((tmp_path / "run" / "chosen.json").read_text())
    assert re.search(
        rf"^ *{choice['validation']:.1f} +1 +{choice['candidate']}$", result.output, re.M
    )
    assert f"Chosen: {choice['candidate']}." in result.output
    assert f"Accuracy on test images, all: {choice['test']['all'][0]:.1f} %." in result.output
    assert set(choice["test"]) == {"all", "worst class"}
