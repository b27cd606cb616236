"""Damaged files are set aside and named, and only what they held is done again; a full disk costs nothing that was."""

import errno
import json
import os
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from pfdl._internal.files import write_atomically
from pfdl._internal.runs import CONFIG
from pfdl._internal.state import load_state, save_state
from pfdl.cli import common as cli_common
from pfdl.cli.main import app
from pfdl.data.mmads import SETTINGS
from pfdl.vision.checkpoint import WEIGHTS
from pfdl.vision.resume import METRICS, STATE
from pfdl.vision.training import TrainingConfig, train
from pfdl_lab.mmads import run as mmads
from tests.hostile.killing_driver import TRAINING, content, pictures
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


@pytest.mark.parametrize(
    "damage", [b"", b'{"task": {"seed": 1', b"[]", b"\xff", b'{"rows": 3}', b'{"rows": [1]}', b"[" * 50_000, None]
)
def test_only_the_damaged_task_is_done_again(damage, calls, tmp_path, caplog):
    mmads.run(TABLE, tmp_path)
    before = content(tmp_path)
    (path,) = [p for p in (tmp_path / "tasks").iterdir() if json.loads(p.read_text())["task"]["seed"] == 1]
    path.unlink()
    os.mkfifo(path) if damage is None else path.write_bytes(damage)
    mmads.run(TABLE, tmp_path)
    assert calls == [0, 1, 2, 1]
    assert aside(tmp_path) == [f"tasks/{path.name}.damaged"]
    assert f"{path} " in caplog.text
    assert "done again" in caplog.text
    (tmp_path / "tasks" / f"{path.name}.damaged").unlink()
    assert content(tmp_path) == before


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b'"never closed'), lambda path: os.mkfifo(path)])
def test_a_damaged_table_is_written_again_from_the_finished_tasks(damage, calls, tmp_path):
    mmads.run(TABLE, tmp_path)
    before = content(tmp_path)
    (tmp_path / "results.csv").unlink()
    damage(tmp_path / "results.csv")
    mmads.run(TABLE, tmp_path)
    assert calls == [0, 1, 2]
    assert aside(tmp_path) == []
    assert content(tmp_path) == before


def test_a_folder_deleted_under_a_run_is_a_sentence_and_stays_deleted(calls, tmp_path, monkeypatch):
    def delete(**task):
        shutil.rmtree(tmp_path / "run")
        return [{"value": 1.0}]

    monkeypatch.setattr(mmads, "run_task", delete)
    with pytest.raises(FileNotFoundError, match="was removed while its tasks ran"):
        mmads.run(TABLE, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_table_of_fewer_seeds_is_not_damaged(calls, tmp_path, caplog):
    mmads.run(replace(TABLE, seeds=1), tmp_path)
    assert len(mmads.run(TABLE, tmp_path)["seed"].unique()) == 3
    assert calls == [0, 1, 2]
    assert aside(tmp_path) == []
    assert caplog.text == ""


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


def test_a_full_disk_in_mid_training_is_a_sentence_and_the_run_resumes_later(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    command = ["train", str(pictures(tmp_path / "data")), *TRAINING, "-o"]
    runner = CliRunner()
    assert runner.invoke(app, [*command, str(tmp_path / "whole")]).exit_code == 0
    monkeypatch.setattr("pfdl.vision.resume.SAVE_EVERY", 0.0)
    weights = (tmp_path / "whole" / WEIGHTS).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (weights * 3 // 2, before[1]))  # weights fit, the state does not
    try:
        result = runner.invoke(app, [*command, str(tmp_path / "full")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 2, result.output
    assert "resume.safetensors cannot be written (File too large); what was there before is left." in result.output
    assert "Traceback" not in result.output
    assert content(tmp_path / "full").keys() == {CONFIG, "manifest.csv", "manifest.json", WEIGHTS, METRICS}
    assert runner.invoke(app, [*command, str(tmp_path / "full")]).exit_code == 0
    assert content(tmp_path / "full") == content(tmp_path / "whole")


@pytest.mark.parametrize("fits", range(5))
def test_a_full_disk_at_any_write_leaves_what_was_finished(fits, calls, tmp_path):
    """The writes: who is at work, the new number of seeds, two tasks, the table."""
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


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    (tmp_path / "deep").mkdir()
    write_atomically(tmp_path / "deep" / "file", "old")
    with full_disk(), pytest.raises(OSError, match=r"file cannot be written \(No space left on device\)"):
        write_atomically(tmp_path / "deep" / "file", "new")
    assert [path.read_text() for path in (tmp_path / "deep").iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("where", "sentence"),
    [("/a/model.onnx", "/a/model.onnx: No space left on device."), (None, "No space left on device.")],
)
def test_an_error_of_the_system_is_a_sentence_on_the_command_line(where, sentence, capsys):
    with pytest.raises(cli_common.typer.Exit), cli_common.answering_mistakes():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)
    assert capsys.readouterr().err == f"Error: {sentence}\n"
