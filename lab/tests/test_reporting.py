import re

from lab.tests.report.made_up import HOSTILE, make_all, make_training, write_config
from tests.cli.typing_commands import typed

from pfdl_lab.cli import report as cli_report


def test_one_page_from_many_runs(tmp_path):
    make_all(tmp_path / "runs")
    result = typed(f"report {tmp_path / 'runs'} -o {tmp_path / 'out' / 'page.html'}")
    assert result.stdout.splitlines()[-1] == str(tmp_path / "out" / "page.html")
    page = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert [re.sub("<.*?>", "", title) for title in re.findall(r"<h2.*?</h2>", page)] == [
        "Colored digits (Colored-MNIST)",
        "Images under context shift",
        "Tables under biased selection (MMADS)",
        "Trainings",
        "How the runs were made",
    ]
    assert HOSTILE not in page
    assert "<script" not in page
    assert "0123456789abcdef" in page
    assert 'class="finding' not in page  # what was found, a person writes


def test_a_folder_that_cannot_be_read_costs_one_section_and_is_named(
    tmp_path,
):
    make_training(tmp_path / "good")
    write_config(tmp_path / "strange", "images", {}, {"hardware": {"gpu": 7}})
    line = "data,backbone,row,seed,epoch,test,value\npets,small,erm,0,last,1:5,50.0\n"
    (tmp_path / "strange" / "results.csv").write_text(line)
    write_config(tmp_path / "stranger", "training", {"training": "x", "model": []})
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("{")
    result = typed(f"report {tmp_path} {tmp_path / 'no'} -o {tmp_path / 'r.html'}")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    for words in (f"{tmp_path}/torn was left out", f"{tmp_path}/no is not a folder"):
        assert words in result.stderr
        assert words in page
    assert "strange does not hold what a run of the kind 'images' should" in result.stderr
    assert "This run could not be shown" in page


def test_two_runs_of_one_kind_are_told_apart(tmp_path):
    for name in ("first", "second"):
        write_config(tmp_path / name, "colored-mnist", {"digits": "MNIST"})
    typed(f"report {tmp_path} -o {tmp_path / 'r.html'}")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Colored digits (Colored-MNIST): first</h2>" in page
    assert "Colored digits (Colored-MNIST): second</h2>" in page
    typed(f"report {tmp_path} -o {tmp_path / 'r.md'}")
    page = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "# Colored digits (Colored-MNIST): second\n" in page


def test_without_a_page_the_tables_are_printed(tmp_path):
    make_training(tmp_path / "good")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("{")
    result = typed(f"report {tmp_path}")
    assert "**Accuracies in percent on 80 images (test)**" in result.stdout
    assert f"{tmp_path}/torn was left out" in result.stderr
    assert "name run folders" in typed("report", fails=True).stderr


def test_without_any_run_there_is_a_sentence_and_no_page(tmp_path):
    result = typed(f"report {tmp_path} -o {tmp_path / 'r.html'}", fails=True)
    assert (
        result.stderr
        == f"Error: there is nothing to report. {tmp_path} holds no run: there is no config.json in"
        " it, nor in folders within it.\n"
    )
    assert not (tmp_path / "r.html").exists()


def test_a_browser_opens_only_in_a_terminal_with_a_display(monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(
        cli_report.webbrowser, "open", lambda address: opened.append(address) or True
    )
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(cli_report.sys.stdout, "isatty", lambda: False, raising=False)
    assert not cli_report.open_in_browser(tmp_path / "a b.html")
    monkeypatch.setattr(cli_report.sys.stdout, "isatty", lambda: True, raising=False)
    assert cli_report.open_in_browser(tmp_path / "a b.html")
    assert opened == [(tmp_path / "a b.html").as_uri()]
    monkeypatch.setattr(cli_report.sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not cli_report.open_in_browser(tmp_path / "a b.html")
