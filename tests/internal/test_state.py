import json
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from pfdl._internal.state import load_state, save_state

plain = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=5)
trees = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(tree=trees)
def test_plain_values_come_back_as_they_were(tree, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "plain.safetensors"
    save_state(path, {"tree": tree})
    loaded = load_state(path)["tree"]
    assert loaded == tree
    assert type(loaded) is type(tree)


def test_an_optimiser_comes_back_bit_for_bit(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    shared = torch.arange(4.0)
    path = tmp_path / "state"
    save_state(path, {"optimizer": optimizer.state_dict(), "views": [shared, shared[1:], shared.reshape(2, 2).T]})
    loaded = load_state(path)
    for number, moments in optimizer.state_dict()["state"].items():
        for name, value in moments.items():
            assert torch.equal(loaded["optimizer"]["state"][number][name], value)
    assert torch.equal(loaded["views"][2], shared.reshape(2, 2).T)
    assert torch.equal(loaded["views"][1], shared[1:])


def test_objects_are_refused_and_the_old_file_stays(tmp_path):
    path = tmp_path / "state"
    save_state(path, {"number": 1})
    with pytest.raises(TypeError, match="a Linear cannot be part"):
        save_state(path, {"model": torch.nn.Linear(1, 1)})
    assert load_state(path) == {"number": 1}
    assert list(tmp_path.iterdir()) == [path]


class Malicious:
    def __reduce__(self):
        return pytest.fail, ("reading a file has run code",)


def test_what_is_no_state_is_refused_and_never_run(tmp_path):
    path = tmp_path / "state"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_state(path)
    path.write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match="not a whole training state"):
        load_state(path)
    torch.save({"x": Malicious()}, path)
    with pytest.raises(ValueError, match="not a whole training state"):
        load_state(path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="its format is None"):
        load_state(path)
    save_file({"x": torch.ones(1)}, path, metadata={"format": "pfdl-state-1", "tree": '{"tensor": "y"}'})
    with pytest.raises(ValueError, match="not a whole training state"):
        load_state(path)
    save_state(path, {"x": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="not a whole training state"):
        load_state(path)


def test_numbers_that_json_has_not_come_back_and_are_no_bare_words_in_it(tmp_path):
    path = tmp_path / "state"
    save_state(path, {"losses": [float("nan"), float("inf"), -float("inf"), 1.5], "size": torch.Size([2, 3])})
    losses = load_state(path)["losses"]
    assert [str(loss) for loss in losses] == ["nan", "inf", "-inf", "1.5"]
    assert load_state(path)["size"] == (2, 3)
    with safe_open(path, framework="pt") as file:
        json.loads(file.metadata()["tree"], parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "tree",
    [
        '{"dict": [["a", {"tensor": "x"}], ["b", {"tensor": "x"}]]}',  # two entries that would share their memory
        '{"dict": [["a", {"set": [1]}]]}',
        '{"dict": [["a", {"list": "abc"}]]}',
        '{"dict": [["a", {"float": "one"}]]}',
        '{"dict": [[["a"], 1]]}',
    ],
)
def test_a_tree_that_nothing_writes_is_refused(tree, tmp_path):
    save_file({"x": torch.ones(1)}, tmp_path / "state", metadata={"format": "pfdl-state-1", "tree": tree})
    with pytest.raises(ValueError, match="not a whole training state"):
        load_state(tmp_path / "state")


def test_a_giant_tree_is_not_parsed(tmp_path, monkeypatch):
    save_state(tmp_path / "state", {"x": "a" * 100})
    monkeypatch.setattr("pfdl._internal.state.MAX_TREE", 100)
    with pytest.raises(ValueError, match="its header has 121 characters"):
        load_state(tmp_path / "state")
