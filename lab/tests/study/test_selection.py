"""An epoch that held-out training samples chose is tested beside the last one."""

import pytest
import torch
from torch import nn

from pfdl.contexts import worst_group_accuracy
from pfdl_lab.study import data as study_data
from pfdl_lab.study import run as study
from pfdl_lab.study.data import SAME, SHIFTED, StudyData
from pfdl_lab.study.run import CHOSEN, StudyConfig
from pfdl_lab.training import Progress, Samples, predict


@pytest.fixture
def task(monkeypatch):
    monkeypatch.setattr(study_data, "COLORED_DIGITS", 200)
    monkeypatch.setattr(study_data, "HIDDEN_WIDTH", 16)

    def run(row, select, **changes):
        how = {"device": "cpu", "images": {}, "epochs": 3, "learning_rate": 0.01, **StudyData("colored-mnist").task}
        return {line["test"]: line["value"] for line in study.run_task(row, 0, select=select, **{**how, **changes})}

    return run


@pytest.mark.parametrize("select", ["accuracy", "worst-group"])
def test_the_chosen_epoch_is_the_best_of_the_held_out_samples(task, select, monkeypatch):
    seen = []

    class Watched(study._Chooser):
        def __call__(self, progress):
            predicted = predict(progress.model, self.held_out.inputs)
            right = float((predicted == self.held_out.labels).double().mean())
            worst = worst_group_accuracy(predicted, self.held_out.labels, self.held_out.contexts)
            seen.append(right if select == "accuracy" else worst)
            super().__call__(progress)

    monkeypatch.setattr(study, "_Chooser", Watched)
    values = task("balance-known", select)
    assert values[f"validation, {select}"] == pytest.approx(100 * max(seen))
    assert {SHIFTED, SAME, SHIFTED + CHOSEN, SAME + CHOSEN} <= set(values)
    assert len(seen) == 3


def test_between_epochs_with_the_same_worst_group_the_average_over_groups_chooses():
    inputs, labels, contexts = torch.eye(4), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    chooser = study._Chooser(Samples(inputs, labels, contexts), "worst-group", "cpu")
    model = nn.Linear(4, 2, bias=False)
    for epoch, answers in enumerate(([1, 1, 0, 1], [0, 1, 1, 1], [0, 1, 1, 0]), 1):  # worst group 0; 1, 3, 2 right
        model.weight.data = torch.nn.functional.one_hot(torch.tensor(answers), 2).T.float()
        chooser(Progress(epoch, model, None, None, {}))
    assert (chooser.best.score, chooser.best.epoch) == (0.0, 2)


def test_with_one_epoch_both_are_the_same(task):
    values = task("erm", "accuracy", epochs=1)
    assert values[SHIFTED + CHOSEN] == values[SHIFTED]


def test_without_selection_nothing_is_held_out(task, monkeypatch):
    monkeypatch.setattr(study, "_hold_out", None)
    assert not any(CHOSEN in test or "validation" in test for test in task("erm", "last"))


def test_a_tenth_of_each_class_is_held_out():
    labels = torch.tensor([0] * 60 + [1] * 40)
    kept, held_out = study._hold_out(labels, seed=3)
    assert torch.bincount(labels[held_out]).tolist() == [6, 4]
    assert torch.equal(torch.cat([kept, held_out]).sort().values, torch.arange(100))


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="select"):
        StudyConfig(rows=("erm",), select="best")
