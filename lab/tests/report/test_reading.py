import json

import pandas as pd
import pytest

from pfdl.runs import read_run
from pfdl_lab.report.reading import Columns, find_runs, read_metrics, read_results

from .made_up import make_all, make_training, write_config


def test_finds_runs_in_folders_of_folders_once_each_and_none_within_runs(tmp_path):
    make_all(tmp_path / "deep" / "er")
    (tmp_path / "loop").symlink_to(tmp_path)
    problems = []
    found = find_runs([tmp_path, tmp_path / "deep" / "er" / "mmads"], problems)
    assert [run.folder.name for run in found] == [
        "colored",
        "images",
        "mmads",
        "trained-erm",
        "trained-pfdl",
    ]
    assert problems == []


def test_what_cannot_be_read_is_named(tmp_path):
    make_training(tmp_path / "good")
    write_config(tmp_path / "newer", "training", {})
    newer = json.loads((tmp_path / "newer" / "config.json").read_text())
    (tmp_path / "newer" / "config.json").write_text(json.dumps({**newer, "format": "pfdl-run-99"}))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text('{"format": "pfdl-r')
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    problems = []
    found = find_runs(
        [tmp_path, tmp_path / "empty", tmp_path / "file", tmp_path / "nowhere"], problems
    )
    assert [run.folder.name for run in found] == ["good"]
    for words in (
        "pfdl-run-99",
        "torn",
        "empty holds no run",
        "file is not a folder",
        "nowhere is not a folder",
    ):
        assert sum(words in problem for problem in problems) == 1


def read(run, problems):
    columns = Columns(("method",), ("seed", "value"), ("method", "seed"))
    return read_results(run, columns, problems)


def write_task(path, seed=0):
    rows = [{"method": method, "value": 1.0} for method in ("a", "b")]
    path.write_text(json.dumps({"task": {"seed": seed}, "rows": rows}))


def test_finished_tasks_fill_what_results_do_not_have_yet(tmp_path):
    run = read_run(write_config(tmp_path, "mmads", {}))
    problems = []
    assert len(read(run, problems)) == 0
    (tmp_path / "tasks").mkdir()
    for seed in (0, 1):
        write_task(tmp_path / "tasks" / f"{seed}.json", seed)
    both = read(run, problems)
    assert set(both["seed"]) == {0, 1}
    both[both["seed"] == 0].assign(value=7.0).to_csv(tmp_path / "results.csv", index=False)
    joined = read(run, problems)
    assert len(joined) == len(both)
    # results.csv goes before the tasks
    assert set(joined.loc[joined["seed"] == 0, "value"]) == {7.0}
    assert problems == []


def test_an_archive_holds_compressed_tables_each_under_its_name(tmp_path):
    run = read_run(write_config(tmp_path, "mmads", {}))
    for name in ("late", "short"):
        frame = pd.DataFrame({"method": ["a", "b"], "seed": [0, 1], "value": [1.0, 2.0]})
        frame.to_csv(tmp_path / f"{name}.csv.gz", index=False)
    problems = []
    both = read(run, problems)
    assert both["table"].tolist() == ["late", "late", "short", "short"]
    (tmp_path / "late.csv.gz").write_bytes((tmp_path / "late.csv.gz").read_bytes()[:-12])
    assert set(read(run, problems)["value"]) == {1.0, 2.0}
    assert len(problems) == 1
    assert "late.csv.gz was left out: it cannot be unpacked" in problems[0]


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"method,seed\na,1\n", b"method,seed,value\na,1,not a number\n"],
    ids=["empty", "bytes", "columns", "words"],
)
def test_damaged_results_are_named_and_left_out(tmp_path, content):
    run = read_run(write_config(tmp_path, "mmads", {}))
    (tmp_path / "results.csv").write_bytes(content)
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks" / "good.json")
    for number, torn in enumerate(("[]", '{"task": {}}', '{"task": {}, "rows": [1]}', "{")):
        (tmp_path / "tasks" / f"torn-{number}.json").write_text(torn)
    problems = []
    assert len(read(run, problems)) == 2
    assert sum("results.csv was left out" in problem for problem in problems) == 1
    assert sum("torn-" in problem for problem in problems) == 4


def test_damaged_curves_are_named_and_left_out(tmp_path):
    problems = []
    assert read_metrics(read_run(write_config(tmp_path / "new", "training", {})), problems) is None
    run = read_run(make_training(tmp_path))
    assert len(read_metrics(run, problems)) == 3
    assert problems == []
    for curves in ("epoch,x\n0,<script>\n", "x\n1\n", ""):
        (tmp_path / "metrics.csv").write_text(curves)
        assert read_metrics(run, problems) is None
    assert len(problems) == 3


def test_results_and_curves_of_another_run_are_left_out_with_a_sentence(tmp_path):
    study = read_run(write_config(tmp_path / "study", "mmads", {"seeds": 2, "first_seed": 5}))
    frame = pd.DataFrame({"method": "a", "seed": [5, 6], "value": 1.0})
    problems = []
    for shift, count in ((0, 2), (1, 0)):
        frame.assign(seed=frame["seed"] + shift).to_csv(study.folder / "results.csv", index=False)
        assert len(read(study, problems)) == count
    settings = {"training": {"epochs": 2}}
    training = read_run(write_config(tmp_path / "training", "training", settings))
    for last in (1, 2):
        curves = pd.DataFrame({"epoch": [0, last], "train_loss": 0.5})
        curves.to_csv(training.folder / "metrics.csv", index=False)
        assert (read_metrics(training, problems) is None) == (last == 2)
    assert "it has results of seed 7, and its run has the seeds 5 to 6" in problems[0]
    assert "it has epoch 3, and its run has 2 epochs" in problems[1]
    assert len(problems) == 2
