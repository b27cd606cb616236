import re
import shutil
from typing import Any

import pytest
from sklearn.datasets import load_wine

from pfdl.data import make_mmads
from tests.cli.typing_commands import FAST, draw, typed

EVIL = "<script>alert(1)<"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two classes that differ in brightness, two contexts that differ in colour, one of them with an evil name."""
    root = tmp_path_factory.mktemp("photos")
    for label, name in enumerate(("cat", "dog")):
        for place, context in enumerate((EVIL, "outdoors")):
            draw(root / name / context, 20, seed=2 * label + place, brightness=60 * label, channel=place)
    return root


TRAIN = f"{FAST} --ratio 2:1 --layout class/context"


@pytest.fixture(scope="module")
def runs(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, objective in (("first", "erm"), ("second", "pfdl")):
        typed(f"train {photos} {TRAIN} -O {objective} -o {folder / name}")
    return folder


@pytest.fixture(scope="module")
def page(runs, photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("page") / "diagnosis.html"
    line = f"diagnose {runs / 'first'} {photos} --compare {runs / 'second'} --device cpu"
    return typed(f"{line} -o {output}"), output


def test_two_runs_are_compared_in_words(page):
    result, output = page
    answers = ("YES", "NO", "CANNOT TELL")
    assert result.stdout.splitlines()[0] in [f"Does first rely on the context? {answer}" for answer in answers]
    for words in (
        "Does second rely on the context? ",
        " right in a class's usual context, ",
        "If the contexts shift, expect ",
        "What to try next:",
        "validation images",
        "on the context",
    ):
        assert words in result.output
    comparison = result.stdout.splitlines()[-2]
    answers = ("relies more", "rely on the context equally", "Cannot tell which")
    assert any(answer in comparison for answer in answers)
    assert result.stdout.splitlines()[-1] == str(output)


def test_the_page_shows_it_all_and_runs_nothing_of_it(page):
    html = page[1].read_text()
    for words in (
        "Diagnosis of first and second",
        "Does first rely on the context? ",
        "What was found about second",
        "What to try next:",
        "What the contexts look like",
        "What the model gets wrong",
        "If the contexts shift",
        "accuracy (%) by class",
        '<th scope="col">validation, ',
        '<th scope="col">in its usual context',
        "The worst groups of first",
    ):
        assert words in html
    assert "different test images" not in html
    assert EVIL not in html
    assert "&lt;script&gt;alert(1)&lt;" in html
    first = r'<main[^>]*>\s*<div class="first">\s*<p class="(yes|no|unclear)">Does first rely on the context\?'
    assert re.search(first, html)
    assert html.count('<img src="data:image/png;base64,') >= 16  # of two contexts
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", html)


def test_the_same_twice(page, runs, photos, tmp_path):
    line = f"diagnose {runs / 'first'} {photos} --compare {runs / 'second'} --device cpu"
    typed(f"{line} -o {tmp_path / 'again.html'}")
    assert (tmp_path / "again.html").read_bytes() == page[1].read_bytes()


def test_one_run_with_other_images_than_another(photos, runs, tmp_path):
    other = tmp_path / "other"
    typed(f"train {photos} {TRAIN} --seed 1 -o {other}")
    typed(f"diagnose {runs / 'first'} {photos} --compare {other} -o {tmp_path / 'page.html'} --device cpu")
    assert "different test images" in (tmp_path / "page.html").read_text()


def test_a_table(tmp_path):
    table = make_mmads(600, 10, 1.7, seed=0).frame()
    table.insert(0, EVIL, table["S1"] ** 2)
    table["word"] = "x"
    table["nearly y"] = table["y"] * 2 + 1
    table["row"] = table.index
    table.to_csv(tmp_path / "table.csv", index=False)
    output = tmp_path / "page.html"
    result = typed(f"diagnose {tmp_path / 'table.csv'} --target y -o {output}")
    assert "behaving like an effect of the label: V1." in result.output
    assert "Nearly a copy of the label: nearly y." in result.output
    assert "Note: left out, as they number or identify the rows: 'row'." in result.output
    lines = result.stdout.splitlines()
    code = lines[lines.index("import pfdl.tabular, sklearn.linear_model") : lines.index("model.fit(X, y)")]
    found: dict[str, Any] = {}
    exec("\n".join(code), found)  # the advice runs as it stands
    assert "V1" not in found["model"].feature_names_in_
    assert any(line.startswith("# Without V1: ") and "% of y is explained" in line for line in code)
    assert "Note: left out, as they are not numeric: 'word'." in result.output
    html = output.read_text()
    for words in ("Diagnosis of table.csv", "m against k", "k = 0.6 m", "follows the label", "not numeric"):
        assert words in html
    assert EVIL not in html


def test_a_table_of_classes_that_nobody_selected(tmp_path):
    table = load_wine(as_frame=True).frame.assign(target=lambda wine: "kind " + wine["target"].astype(str))
    path = tmp_path / "wine.csv"
    table.to_csv(path, sep=";", decimal=",", index=False)
    result = typed(f"diagnose {path} --target target -o {tmp_path / 'page.html'}")
    assert "Every column is kept" in result.output
    assert "LogisticRegression(" in result.output


def test_images_without_contexts_get_inferred_ones_or_no_answer(photos, tmp_path):
    plain, output = tmp_path / "plain", tmp_path / "page.html"
    for name in ("cat", "dog"):
        shutil.copytree(photos / name / "outdoors", plain / name)
    typed(f"train {plain} {FAST} -O erm -o {tmp_path / 'run'}")
    result = typed(f"diagnose {tmp_path / 'run'} {plain} -o {output}")
    assert "Cannot tell whether the model relies on the context" in result.stdout
    html = output.read_text()
    assert '<p class="unclear">Does run rely on the context? Cannot tell' in html
    assert "accuracy (%) by class" in html
