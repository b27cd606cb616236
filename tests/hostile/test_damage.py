"""Damaged files are set aside and named, and only what they held is done again; a full disk costs nothing that was."""

import errno
import os
import shutil
from dataclasses import replace

import pytest

from pfdl._internal.runs import CONFIG
from pfdl._internal.state import load_state, save_state
from pfdl.cli import common as cli_common
from pfdl.data.mmads import SETTINGS
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE
from pfdl.vision.training import TrainingConfig, train
from pfdl_lab.mmads import run as mmads
from tests.hostile.killing_driver import content
from tests.hostile.tampering import full_disk
from tests.vision.tiny_images import tiny_data

PLAN = TrainingConfig(backbone="mlp", objective="erm", image_size=8, epochs=2, batch_size=16)
TABLE = mmads.MMADSConfig(cells=((100, 10, 1.7),), settings=SETTINGS[:1], seeds=3, test_sets=1, num_test=50)


@pytest.fixture
def calls(monkeypatch):
    """Quick methods, and a list of the seeds that were worked on."""
    seeds = []
    original = mmads.run_task

    def spy(seed, **rest):
        seeds.append(seed)
        return original(seed=seed, **rest)

    monkeypatch.setattr(mmads, "METHODS", {"OLS": mmads.METHODS["OLS"]})
    monkeypatch.setattr(mmads, "run_task", spy)
    return seeds


def aside(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.damaged"))


def test_a_folder_deleted_under_a_run_is_a_sentence_and_stays_deleted(calls, tmp_path, monkeypatch):
    def delete(**task):
        shutil.rmtree(tmp_path / "run")
        return [{"value": 1.0}]

    monkeypatch.setattr(mmads, "run_task", delete)
    with pytest.raises(FileNotFoundError, match="was removed while its tasks ran"):
        mmads.run(TABLE, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(PLAN, *tiny_data(), tmp_path_factory.mktemp("trained") / "run", device="cpu")


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def lack_a_part(path):
    state = load_state(path)
    save_state(path, {**{name: state[name] for name in state if name != "module"}, "finished": False})


@pytest.mark.parametrize(
    ("name", "damage", "set_aside", "kept"),
    [
        (METRICS, lambda path: path.write_text("epoch,lea\n0"), [], True),
        (METRICS, lambda path: path.unlink(), [], True),
        (STATE, cut, [STATE], False),
        (STATE, lack_a_part, [STATE], False),
        (STATE, lambda path: path.write_bytes(b"\x80\x04K\x01."), [STATE], False),
        (WEIGHTS, cut, [WEIGHTS, STATE], False),
        (WEIGHTS, lambda path: path.unlink(), [STATE], False),
        ("manifest.csv", cut, [], True),
        ("manifest.json", lambda path: path.unlink(), [], True),
    ],
)
def test_a_training_redoes_what_a_damaged_file_held(name, damage, set_aside, kept, trained, tmp_path, caplog):
    folder = shutil.copytree(trained, tmp_path / "run")
    damage(folder / name)
    state_time = (folder / STATE).stat().st_mtime_ns
    train(PLAN, *tiny_data(), folder, device="cpu")
    assert ((folder / STATE).stat().st_mtime_ns == state_time) == kept  # unless something is trained
    assert aside(folder) == sorted(f"{name}.damaged" for name in set_aside)
    assert all(name in caplog.text for name in set_aside)
    for path in folder.glob("*.damaged"):
        path.unlink()
    assert content(folder) == content(trained)


@pytest.mark.parametrize("fits", range(4))
def test_a_full_disk_at_any_write_leaves_what_was_finished(fits, calls, tmp_path):
    """The writes: the new number of seeds, two tasks, the table."""
    mmads.run(replace(TABLE, seeds=1), tmp_path)
    before = content(tmp_path)
    with full_disk(fits), pytest.raises(OSError, match=r"cannot be written \(No space left on device\)") as error:
        mmads.run(TABLE, tmp_path)
    assert error.value.errno == errno.ENOSPC
    found = content(tmp_path)
    assert found.keys() >= before.keys()
    assert all(found[name] == before[name] for name in before if name != CONFIG)
    assert mmads.run(TABLE, tmp_path)["seed"].unique().tolist() == [0, 1, 2]
    assert calls.count(0) == 1


@pytest.mark.parametrize(
    ("where", "sentence"),
    [("/a/model.onnx", "/a/model.onnx: No space left on device."), (None, "No space left on device.")],
)
def test_an_error_of_the_system_is_a_sentence_on_the_command_line(where, sentence, capsys):
    with pytest.raises(cli_common.typer.Exit), cli_common.answering_mistakes():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)
    assert capsys.readouterr().err == f"Error: {sentence}\n"
