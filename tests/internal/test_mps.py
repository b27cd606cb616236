"""Sharing a GPU by NVIDIA's MPS, with a stand-in for its control program on the PATH."""

import io
import os
import stat
from pathlib import Path

import pytest
from rich.console import Console

from pfdl._internal.mps import CONTROL, LOGS, PIPES
from pfdl._internal.workers import Workers
from pfdl.cli.workers import Parallel

STAND_IN = """#!/bin/sh
# Notes its calls. Like the real one it refuses commands where no daemon runs in the folder of pipes.
folder=${CUDA_MPS_PIPE_DIRECTORY:-%(default)s}
if [ "$1" = -d ]; then
    echo "start $CUDA_MPS_PIPE_DIRECTORY" >> %(log)s
    %(start)s
    touch "$folder/daemon"
    exit 0
fi
read command
[ -e "$folder/daemon" ] || exit 1
echo "$command $CUDA_MPS_PIPE_DIRECTORY" >> %(log)s
[ "$command" = quit ] && rm "$folder/daemon"
exit 0
"""


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)


@pytest.fixture
def control(tmp_path, monkeypatch):
    """Put a stand-in on the PATH; what is returned writes it, and has its calls in ``calls``."""
    programs, log, default = tmp_path / "bin", tmp_path / "calls", tmp_path / "default"
    programs.mkdir()
    default.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for name in (PIPES, LOGS):
        monkeypatch.delenv(name, raising=False)

    def write(start="true"):
        program = programs / CONTROL
        program.write_text(STAND_IN % {"log": log, "default": default, "start": start})
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return default, lambda: log.read_text().splitlines() if log.exists() else []

    return write


def environment(number: int) -> str:
    return os.environ.get(PIPES, "")


def shared(jobs=2, device="cuda", backend="joblib", run=False):
    """What was said, the folder of pipes meanwhile, and those that the workers saw."""
    stream = io.StringIO()
    with Parallel(jobs, backend).execution(device, console=Console(file=stream, width=500)) as execution:
        tasks = [{"number": number} for number in (1, 2)]
        seen = [found for _, found in execution.workers.run(environment, tasks)] if run else []
        meanwhile = os.environ.get(PIPES)
    return stream.getvalue(), meanwhile, seen


def test_mps_runs_while_the_trainings_run_and_ends_with_them(control):
    _, calls = control()
    said, folder, seen = shared(run=True)
    assert "Started NVIDIA's MPS" in said
    assert calls() == [f"start {folder}", f"quit {folder}"]
    assert seen == [folder, folder]  # the workers find it
    assert PIPES not in os.environ
    assert LOGS not in os.environ
    assert not Path(folder).exists()


def test_mps_that_runs_already_is_used_and_left_running(control):
    default, calls = control()
    (default / "daemon").touch()
    said, folder, _ = shared()
    assert "MPS runs already" in said
    assert folder is None
    assert calls() == ["get_server_list "]
    assert (default / "daemon").exists()


def test_where_mps_does_not_start_the_reason_is_said(control):
    control(start='echo "no permission"; exit 3')
    said, _, _ = shared()
    assert "could not be started (no permission)" in said
    assert PIPES not in os.environ


def test_where_mps_is_not_installed_a_line_says_what_it_is(control):
    said, _, _ = shared()
    assert len(said.splitlines()) == 1
    assert "docs/performance.md" in said


@pytest.mark.parametrize("options", [{"jobs": 1}, {"device": "cpu"}, {"backend": "ray"}])
def test_mps_is_for_several_trainings_of_this_machine_on_one_gpu(control, options):
    _, calls = control()
    assert shared(**options) == ("", None, [])
    assert calls() == []


def test_gpus_are_asked_for_by_fraction(monkeypatch):
    with Parallel(1, "ray", 0.1).execution("cuda") as execution:
        assert execution.workers == Workers(1, "ray", 0.1)
    with Parallel(1, "ray").execution("cuda") as execution:
        assert execution.workers.gpus_per_task == 1.0
    with Parallel(1, "ray").execution("cpu", share_cores=True) as execution:
        assert execution.workers.gpus_per_task == 0.0
    for options, message in (((2, "joblib", 0.1), "is for --backend ray"), ((1, "ray", 0.0), "is 0")):
        with pytest.raises(ValueError, match=message), Parallel(*options).execution("cuda"):
            pass
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert Parallel(1, "ray", None).find_device("cuda") == "cuda"  # others of the cluster may have it
    assert Parallel(1, "ray", 0.5).find_device("auto") == "cuda"
    assert Parallel(1, "ray", None).find_device("auto") == "cpu"
    with pytest.raises(ValueError, match="'cuda' is not available here"):
        Parallel(1, "joblib", None).find_device("cuda")
