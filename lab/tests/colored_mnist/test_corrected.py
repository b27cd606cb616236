import json

import numpy as np
import pandas as pd
import pytest

from pfdl.data import ColoredMNIST
from pfdl.data.digits import find_digits
from pfdl_lab.colored_mnist.corrected import ANSWERS, OBJECTIVE, read_corrected, store_answers, write_corrected
from pfdl_lab.colored_mnist.rows import WITHOUT_LABELS
from pfdl_lab.colored_mnist.selection import WORST_GROUP

FIRST, SECOND = (row.key for row in WITHOUT_LABELS[OBJECTIVE])


@pytest.fixture(scope="module")
def data():
    return ColoredMNIST(find_digits(None), seed=0, max_train=100)


def results(**worst):
    """What was measured after two steps; the best worst group decides which network is looked at."""
    lines = [{"row": "erm", "restart": 0, "step": 500, WORST_GROUP: np.nan}]
    lines += [
        {"row": row, "restart": 0, "step": step, WORST_GROUP: worst.get(f"{name}_{step}", 10.0)}
        for name, row in (("first", FIRST), ("second", SECOND))
        for step in (20, 40)
    ]
    return pd.DataFrame(lines)


def test_counts_are_those_of_the_network_that_was_chosen(data, tmp_path):
    truth = data.test.labels.numpy() > 0.5
    plain, chosen = ~truth, truth.copy()
    plain[:7] = truth[:7]  # right with plain training
    chosen[:3] = ~truth[:3]  # wrong with the other
    store_answers(tmp_path / ANSWERS, "erm", {20: truth, 500: plain})
    store_answers(tmp_path / ANSWERS, FIRST, {20: ~truth, 40: ~truth})
    store_answers(tmp_path / ANSWERS, SECOND, {20: chosen, 40: ~truth})
    write_corrected(tmp_path, results(second_20=50.0), data)
    found = read_corrected(tmp_path)
    assert (found.digits, found.wrong, found.corrected, found.newly_wrong) == (
        len(truth),
        len(truth) - 7,
        len(truth) - 7,
        3,
    )
    assert found.picture.startswith(b"\x89PNG")


def test_without_the_rows_or_their_answers_there_is_nothing(data, tmp_path):
    everything = results()
    write_corrected(tmp_path, everything[everything["row"] != SECOND], data)
    write_corrected(tmp_path, everything, data)  # answers that an older version did not keep
    assert read_corrected(tmp_path) is None
    (tmp_path / "corrected.png").write_bytes(b"")
    (tmp_path / "corrected.json").write_text(json.dumps({"digits": "many"}))
    assert read_corrected(tmp_path) is None
