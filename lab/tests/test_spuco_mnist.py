"""The study beside the peers: whose groups are drawn how, and what held-out images choose."""

import numpy as np
import pytest
from tests.cli.typing_commands import typed

from pfdl_lab import spuco_mnist as study
from pfdl_lab.records import open_records


@pytest.fixture
def draw(monkeypatch):
    drawn = []

    def train(self, sampler, contexts, power=1.0, draws=None):
        drawn.append((sampler, power, draws))
        return [f"{sampler} {power}"]

    monkeypatch.setattr(study.Draw, "train", train)
    made = study.Draw(None, magnitude="large", strength=0.9, label_noise=0.0, images=200, seed=0)
    made.drawn = drawn
    return made


def test_the_control_draws_classes_and_not_contexts(draw):
    assert draw.trainings("classes") == {1.0: ["classes 1.0"]}
    assert len(np.unique(draw.groups("classes").contexts)) == 1


def test_strengths_are_tried_where_they_are_chosen_and_plain_training_is_shared(draw):
    assert draw.trainings("true") == {1.0: ["groups 1.0"]}
    draw.groups = lambda name: study.Groups(draw.truth, np.ones(len(draw.truth)))
    assert draw.trainings("jtt chosen") == {
        0.0: ["shuffle 1.0"],
        0.5: ["groups 0.5"],
        1.0: ["groups 1.0"],
    }
    draw.trainings("erm")
    assert [sampler for sampler, *_ in draw.drawn].count("shuffle") == 1
    (own,) = draw.trainings("jtt").values()
    assert own == ["shuffle 1.0"]
    assert draw.drawn[-1][2] is not None  # by the rule of the method itself


def test_the_command_trains_and_its_records_can_be_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "EPOCHS", 3)
    result = typed(
        "reproduce spuco-mnist --magnitudes large --rows 'erm; ours; jtt' --seeds 1 --images 400"
        f" --jobs 1 -o {tmp_path / 'run'}"
    )
    assert "| erm | 1 |" in result.stdout
    records = open_records(tmp_path / "run")
    for test in ("average", "worst"):
        accuracy = records.values("large", "ours", "chosen", test)
        assert accuracy.index.tolist() == [101]
        assert accuracy.between(0, 100).all()
    assert (records.values("all", "erm", "chosen", "average") > 0).all()


def test_a_row_or_a_difficulty_that_is_not_there_is_named(tmp_path):
    for option in ("--rows magic", "--magnitudes huge"):
        message = typed(f"reproduce spuco-mnist {option} -o {tmp_path / 'run'}", fails=True).stderr
        assert option.split()[1] in message
