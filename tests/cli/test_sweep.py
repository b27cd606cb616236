import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from pfdl.cli.sweep import parse_space
from pfdl.vision import SweepConfig
from pfdl.vision.config import TrainingConfig


def test_every_combination_is_tried_once_and_settings_count_where_the_objective_has_the_part():
    grid = parse_space(
        ["objective=erm,pfdl", "pfdl.weight=0.1,1", "learning-rate=0.1,0.01", "epochs=7"]
    )
    config = SweepConfig(grid, "worst-class")
    found = dict(map(config.candidate, config.combinations()))
    assert config.number == 6
    assert list(found) == [
        "objective=erm, learning_rate=0.1",
        "objective=erm, learning_rate=0.01",
        "objective=pfdl, pfdl.weight=0.1, learning_rate=0.1",
        "objective=pfdl, pfdl.weight=0.1, learning_rate=0.01",
        "objective=pfdl, pfdl.weight=1, learning_rate=0.1",
        "objective=pfdl, pfdl.weight=1, learning_rate=0.01",
    ]
    assert found["objective=erm, learning_rate=0.1"] == TrainingConfig(
        objective="erm", learning_rate=0.1, epochs=7, select="worst-class"
    )
    assert found["objective=pfdl, pfdl.weight=1, learning_rate=0.1"].objective_settings == {
        "pfdl": {"weight": 1}
    }


def test_one_value_fixes_a_setting_and_values_have_its_type():
    config = SweepConfig(parse_space(["epochs=7"]))
    assert config.candidate({"epochs": 7}) == ("as given", TrainingConfig(epochs=7))
    assert config.number == 1
    grid = parse_space(["patience=null,5", "weights=../none.pth", "small_stem=true,false"])
    assert grid == {"patience": [None, 5], "weights": ["../none.pth"], "small_stem": [True, False]}


def test_what_is_typed_as_options_of_a_training_is_tried_too():
    space = parse_space(["pfdl.weight=0.1,1"], {"objective": "erm,pfdl", "learning_rate": "0.1"})
    assert space == parse_space(["objective=erm,pfdl", "learning-rate=0.1", "pfdl.weight=0.1,1"])
    with pytest.raises(ValueError, match="--set is 'epochs=7'; names it twice"):
        parse_space(["epochs=7"], {"epochs": "5"})


def test_a_range_is_two_numbers_and_needs_a_number_of_trials():
    space = parse_space(
        ["learning-rate=0.001..0.1", "epochs=2..9", "objective=pfdl", "pfdl.weight=0.1..10"]
    )
    assert space.pop("objective") == ["pfdl"]
    assert space == {
        "learning_rate": FloatDistribution(0.001, 0.1, log=True),
        "epochs": IntDistribution(2, 9),
        "pfdl.weight": FloatDistribution(0.1, 10, log=True),
    }
    assert SweepConfig(space, trials=5).number == 5
    with pytest.raises(ValueError, match=r"learning_rate is a range.*by trials .--trials."):
        SweepConfig(space)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["epochs"], "--set is 'epochs'; give NAME=VALUE, a NAME of"),
        (["seed=1,2"], "--set is 'seed=1,2'"),
        (["epochs=3", "epochs=4"], "names it twice"),
        (["epochs=2.5"], "epochs is '2.5'; give a whole number"),
        (["objective=erm", "pfdl.weight=1"], "names 'pfdl.weight', but the objective is erm"),
        (["epochs=9..2"], "a range is LOW..HIGH with two numbers"),
    ],
)
def test_mistakes_are_named(texts, message):
    with pytest.raises(ValueError, match=message):
        parse_space(texts)
