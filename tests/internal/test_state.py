import json
import pickle

import pytest
import torch
from hypothesis import given, strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from pfdl._internal.state import load_state, save_state

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
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


def test_tensors_that_share_memory_come_back_with_memory_of_their_own(tmp_path):
    shared = torch.arange(4.0)
    views = [shared, shared[1:], shared.reshape(2, 2).T]
    save_state(tmp_path / "state", {"views": views})
    loaded = load_state(tmp_path / "state")["views"]
    assert all(map(torch.equal, loaded, views))
    assert len({view.data_ptr() for view in loaded}) == 3


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


def test_numbers_that_json_has_not_come_back_and_are_no_bare_words_in_it(tmp_path):
    path = tmp_path / "state"
    save_state(
        path,
        {"losses": [float("nan"), float("inf"), -float("inf"), 1.5], "size": torch.Size([2, 3])},
    )
    losses = load_state(path)["losses"]
    assert [str(loss) for loss in losses] == ["nan", "inf", "-inf", "1.5"]
    assert load_state(path)["size"] == (2, 3)
    with safe_open(path, framework="pt") as file:
        json.loads(file.metadata()["tree"], parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "tree",
    [
        '{"tensor": "y"}',
        # two entries that would share their memory
        '{"dict": [["a", {"tensor": "x"}], ["b", {"tensor": "x"}]]}',
        '{"dict": [["a", {"set": [1]}]]}',
        '{"dict": [["a", {"list": "abc"}]]}',
        '{"dict": [["a", {"float": "one"}]]}',
        '{"dict": [[["a"], 1]]}',
        '{"list": [' * 5000 + "]}" * 5000,
    ],
)
def test_a_tree_that_nothing_writes_is_refused(tree, tmp_path):
    save_file(
        {"x": torch.ones(1)}, tmp_path / "state", metadata={"format": "pfdl-state-1", "tree": tree}
    )
    with pytest.raises(ValueError, match="not a whole training state"):
        load_state(tmp_path / "state")


def test_a_giant_tree_is_not_parsed(tmp_path, monkeypatch):
    save_state(tmp_path / "state", {"x": "a" * 100})
    monkeypatch.setattr("pfdl._internal.state.MAX_TREE", 100)
    with pytest.raises(ValueError, match="its header has 121 characters"):
        load_state(tmp_path / "state")
