"""The grid runner: nothing twice, nothing lost, nothing half."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from tests.hostile.tampering import full_disk
from tests.processes import Forked

from pfdl._internal.workers import WorkerLostError, _end_with_parent
from pfdl.cli.main import main
from pfdl_lab.grid import PACK, finish, run_grid
from pfdl_lab.progress import EVERY, report
from pfdl_lab.workers import Execution


def squares(base: int, log: str) -> list[dict[str, object]]:
    """Two rows, and a mark for every call."""
    with Path(log).open("a") as stream:
        stream.write(f"{base}\n")
    return [{"power": power, "value": base**power} for power in (1, 2)]


def dies_at_nine(base: int) -> list[dict[str, object]]:
    if base == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"value": base}]


def reports(number: int) -> list[dict[str, object]]:
    """Say how far it is, for as long as the process that draws may need to see it."""
    report(0, 8, f"[training] {number}, epochs")
    time.sleep(1.1 * EVERY)  # what comes sooner is not told
    report(5, 8)
    time.sleep(1.5 * EVERY)
    return [{"number": number}]


def threads() -> list[dict[str, object]]:
    return [{"threads": torch.get_num_threads()}]


def sleeps(number: int, folder: str) -> list[dict[str, object]]:
    (Path(folder) / f"{number}.pid").write_text(str(os.getpid()))
    time.sleep(600)
    return []


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # one that ended but was not collected yet is still listed
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def calls(tmp_path):
    (tmp_path / "calls").touch()
    return tmp_path / "calls"


def tasks(calls: Path, bases=(1, 2, 3)) -> list[dict[str, object]]:
    return [{"base": base, "log": str(calls)} for base in bases]


@pytest.mark.parametrize("jobs", [1, 2])
def test_rows_of_all_tasks_in_their_order_and_a_line_per_task_in_a_pipe(tmp_path, calls, jobs):
    pipe = io.StringIO()
    frame = run_grid(
        squares, tasks(calls), tmp_path / "out", Execution(jobs, console=Console(file=pipe))
    )
    lines = pipe.getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"{n} of 3 tasks done" for n in (1, 2, 3)]
    assert lines[0].endswith(" left")
    assert not lines[2].endswith(" left")
    expected = [[base, power, base**power] for base in (1, 2, 3) for power in (1, 2)]
    assert frame[["base", "power", "value"]].to_numpy().tolist() == expected


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_terminal_shows_how_far_each_task_is(tmp_path, jobs):
    grid = [{"number": number} for number in (0, 1)]
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=120)
    run_grid(reports, grid, tmp_path / "a", Execution(jobs, console=console))
    for number in (0, 1):
        assert re.search(rf"\[training\] {number}, epochs.*5/8", terminal.getvalue())
    assert "2/2" in terminal.getvalue()


def test_a_second_run_does_only_what_is_missing(tmp_path, calls):
    run_grid(squares, tasks(calls, [1, 2]), tmp_path / "out")
    first = run_grid(squares, tasks(calls), tmp_path / "out")
    assert calls.read_text().split() == ["1", "2", "3"]
    again = run_grid(squares, tasks(calls), tmp_path / "out")
    assert calls.read_text().split() == ["1", "2", "3"]
    assert again.equals(first)


@pytest.mark.parametrize(
    "damage", ["", '{"task": {"base": 1', "[]", '{"task": {"base": 7}, "rows": []}', "\udcff"]
)
def test_a_damaged_file_is_done_again(tmp_path, calls, damage):
    run_grid(squares, tasks(calls, [1]), tmp_path / "out")
    (stored,) = (tmp_path / "out").iterdir()
    stored.write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert run_grid(squares, tasks(calls, [1]), tmp_path / "out")["value"].tolist() == [1, 1]
    assert calls.read_text().split() == ["1", "1"]
    assert json.loads(stored.read_text())["task"]["base"] == 1


@pytest.mark.parametrize("fits", [0, 1])
def test_a_full_disk_leaves_what_was_finished(tmp_path, calls, fits):
    run_grid(squares, tasks(calls, [1]), tmp_path / "out")
    with (
        full_disk(fits),
        pytest.raises(OSError, match=r"cannot be written \(No space left on device\)") as error,
    ):
        run_grid(squares, tasks(calls), tmp_path / "out")
    assert error.value.errno == errno.ENOSPC
    assert len(list((tmp_path / "out").iterdir())) == 1 + fits
    assert run_grid(squares, tasks(calls), tmp_path / "out")["base"].unique().tolist() == [1, 2, 3]
    assert calls.read_text().split().count("1") == 1


def removes(folder: str) -> list[dict[str, object]]:
    shutil.rmtree(folder)
    return [{"value": 1}]


def test_a_folder_removed_under_a_run_is_a_sentence_and_stays_removed(tmp_path):
    with pytest.raises(FileNotFoundError, match="was removed while its tasks ran"):
        run_grid(removes, [{"folder": str(tmp_path / "out")}], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def slow(base: int, log: str) -> list[dict[str, object]]:
    time.sleep(0.05)
    return squares(base, log)


def run_slowly() -> None:
    run_grid(slow, tasks(Path(sys.argv[1]), range(200)), Path(sys.argv[2]))


def test_killed_at_any_moment_the_next_run_goes_on(tmp_path, calls):
    process = Forked(run_slowly, calls, tmp_path / "out")
    while len(calls.read_text().split()) < 3:
        assert process.is_running, process.stderr
        time.sleep(0.02)
    assert process.kill() == -signal.SIGKILL
    done_before = len(calls.read_text().split())
    frame = run_grid(squares, tasks(calls, range(200)), tmp_path / "out")
    assert frame["value"].tolist() == [base**power for base in range(200) for power in (1, 2)]
    # At most the task in flight was done twice.
    assert 200 <= len(calls.read_text().split()) <= 201
    assert 3 <= done_before < 200


def sleep_side_by_side() -> None:
    folder = sys.argv[1]
    both = [{"number": number, "folder": folder} for number in range(2)]
    run_grid(sleeps, both, Path(folder, "out"), Execution(2))


def work_for_a_process_that_is_gone():
    _end_with_parent(0)
    sleeps(0, sys.argv[1])


def test_a_worker_that_starts_after_the_end_of_its_process_ends(tmp_path):
    assert Forked(work_for_a_process_that_is_gone, tmp_path).finish(60) == 1


@pytest.mark.skipif(
    os.name != "posix", reason="a process whose parent is gone gets another one on POSIX alone"
)
def test_workers_end_with_the_process_they_work_for(tmp_path):
    process = Forked(sleep_side_by_side, tmp_path)
    while len(pids := [path.read_text() for path in tmp_path.glob("*.pid")]) < 2 or "" in pids:
        assert process.is_running, process.stderr
        time.sleep(0.05)
    assert process.kill() == -signal.SIGKILL
    while any(is_running(int(pid)) for pid in pids):  # for ever, if they did not end
        time.sleep(0.05)
    assert not list((tmp_path / "out").glob("*.json"))


def test_sigterm_ends_a_command_with_a_sentence_and_no_complaint_of_its_workers(tmp_path):
    process = Forked(main, "reproduce", "mmads", "--quick", "--jobs", "2", "-o", tmp_path / "run")
    while not any(tmp_path.glob("run/*/*.json")):
        assert process.is_running, process.stderr
        time.sleep(0.05)
    process.process.terminate()
    assert process.finish(60) == 130
    assert re.fullmatch(
        r"(\d+ of 18 tasks done.*\n)*Stopped\. What is finished is kept; .*\n", process.stderr
    )


def test_a_finished_run_keeps_one_file_and_a_larger_one_resumes_from_it(tmp_path, calls):
    first = run_grid(squares, tasks(calls, (1, 2)), tmp_path / "cells")
    finish(first, tmp_path, "cells", "nothing-here")
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [PACK]
    both = run_grid(squares, tasks(calls, (1, 2, 3)), tmp_path / "cells")
    finish(both, tmp_path, "cells")
    assert calls.read_text().split() == ["1", "2", "3"]
    assert run_grid(squares, tasks(calls, (3, 1)), tmp_path / "cells")["base"].tolist() == [
        3,
        3,
        1,
        1,
    ]
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 1 + 6


def test_a_damaged_file_of_finished_tasks_is_set_aside_and_they_are_done_again(tmp_path, calls):
    results = run_grid(squares, tasks(calls), tmp_path / "cells")
    finish(results, tmp_path, "cells")
    (tmp_path / "cells" / PACK).write_bytes(b"torn")
    assert run_grid(squares, tasks(calls), tmp_path / "cells").equals(results)
    assert calls.read_text().split() == ["1", "2", "3"] * 2


def test_workers_use_one_thread_and_give_the_others_back(tmp_path):
    before = torch.get_num_threads()
    assert run_grid(threads, [{}], tmp_path)["threads"].tolist() == [1]
    assert torch.get_num_threads() == before


def test_a_killed_worker_gets_a_sentence_and_what_was_finished_is_kept(tmp_path):
    with pytest.raises(
        WorkerLostError, match=r"was killed, .* with fewer --jobs if it has that option"
    ):
        run_grid(dies_at_nine, [{"base": 1}, {"base": 9}], tmp_path, Execution(2))
    assert [json.loads(path.read_text())["task"] for path in tmp_path.iterdir()] in (
        [],
        [{"base": 1}],
    )


def test_ray_that_is_not_installed_is_named(tmp_path, calls, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"pfdl\[cluster\]"):
        run_grid(squares, tasks(calls), tmp_path / "out", Execution(backend="ray"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "dask"}, "backend is 'dask'; choose one of 'joblib', 'ray'"),
        ({"jobs": 0}, "jobs is 0"),
        ({"gpus_per_task": 0.1}, "gpus_per_task is for the backend ray"),
        ({"backend": "ray", "gpus_per_task": 1.5}, "gpus_per_task is 1.5; give a part of one GPU"),
        (
            {"backend": "ray", "gpus_per_task": 0, "device": "cuda"},
            "gpus_per_task is 0, but tasks compute on a GPU",
        ),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Execution(**options)
