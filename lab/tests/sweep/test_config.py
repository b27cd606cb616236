import pytest

from pfdl.objectives.examples import make_example
from pfdl.vision.config import TrainingConfig
from pfdl_lab.sweep.config import SweepConfig, parse_grid


def test_every_combination_is_tried_once_and_settings_count_where_the_objective_has_the_part():
    grid = parse_grid(["objective=erm,pfdl", "pfdl.weight=0.1,1", "learning-rate=0.1,0.01", "epochs=7"])
    found = SweepConfig(grid, "worst-class").candidates()
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
    assert found["objective=pfdl, pfdl.weight=1, learning_rate=0.1"].objective_settings == {"pfdl": {"weight": 1}}


def test_one_value_fixes_a_setting():
    assert SweepConfig(parse_grid(["epochs=7"])).candidates() == {"as given": TrainingConfig(epochs=7)}


def test_values_have_the_types_of_their_settings():
    grid = parse_grid(["patience=null,5", "weights=none.pth", "small_stem=true,false", "pfdl.hidden=64,[32,32]"])
    assert grid == {
        "patience": [None, 5],
        "weights": ["none.pth"],
        "small_stem": [True, False],
        "pfdl.hidden": [64, [32, 32]],
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["epochs"], "--set is 'epochs'; give NAME=VALUE,VALUE"),
        (["epoch=3"], "--set names 'epoch'; choose from augment, backbone, batch_size"),
        (["seed=1,2"], "for that use --seeds"),
        (["select=accuracy"], "for that use --select"),
        (["epochs=3", "epochs=4"], "names epochs twice"),
        (["epochs=3,3"], "gives a value of epochs twice"),
        (["epochs=2.5"], "--set epochs is 2.5; give a whole number"),
        (["learning-rate=fast"], "--set learning_rate is 'fast'; give a number"),
        (["patience=soon"], "give a whole number or null"),
        (["small-stem=1"], "give true or false"),
        (["objective=erm", "pfdl.weight=1"], r"no objective of the sweep \(erm\) has 'pfdl'"),
        (["pfdl.wait=1"], "'pfdl' has .*weight"),
    ],
)
def test_mistakes_are_named(texts, message):
    with pytest.raises(ValueError, match=message):
        parse_grid(texts)


def test_an_unknown_objective_or_a_value_that_it_refuses_is_named():
    with pytest.raises(ValueError, match="'magic' in the objective 'magic' is unknown"):
        make_example("magic", {})
    with pytest.raises(ValueError, match="select is 'best'"):
        SweepConfig({}, "best")
