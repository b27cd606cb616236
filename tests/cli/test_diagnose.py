import re
import shutil
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from pfdl.data import make_mmads
from pfdl.report.diagnosis_page import THUMBNAILS
from tests.browsing import PHONE, needs_browser
from tests.cli.typing_commands import FAST, draw, draw_all, typed

EVIL = "<script>window.hacked = 1<"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two classes that differ in brightness, two contexts that differ in colour, one of them with
    an evil name.
    """
    return draw_all(
        tmp_path_factory.mktemp("photos"), (EVIL, "outdoors"), 20, brightness=60, coloured=True
    )


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
    assert re.match(r"Does first rely on the context\? (YES|NO|CANNOT TELL)\n", result.stdout)
    assert "Does second rely on the context? " in result.output
    assert "What to try next:" in result.output
    assert re.search(
        "relies more|No difference is shown|Cannot tell which", result.stdout.splitlines()[-2]
    )
    assert result.stdout.splitlines()[-1] == str(output)


def test_the_page_shows_it_all_and_runs_nothing_of_it(page):
    html = page[1].read_text()
    shown = (
        "What was found about second|What to try next:|What the model gets wrong|accuracy (%) by"
        " class|"
    )
    shown += "Side by side|Accuracy (%) of the models|What the files say of the class|"
    shown += "brightness (0 to 255)|Where the contexts are seen|few to rest on|"
    shown += (
        '<th scope="col">validation, |<th scope="col">in its usual context|The worst groups of'
        " first"
    )
    for words in shown.split("|"):
        assert words in html
    assert "different test images" not in html
    assert EVIL not in html
    assert "&lt;script&gt;window.hacked" in html
    # A row for each context
    assert html.count('<img src="data:image/png;base64,') >= 2 * THUMBNAILS
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", html)


@needs_browser
def test_a_browser_runs_no_script_and_asks_nothing_of_the_network(page, visit):
    seen = visit(page[1])
    assert seen.page.evaluate("window.hacked") is None
    assert seen.complaints == []
    assert [one for one in seen.requests if not one.startswith("data:")] == [page[1].as_uri()]


@needs_browser
def test_a_browser_shows_the_curves_and_pictures_of_each_group(page, visit):
    shown = visit(page[1]).page
    assert shown.locator(".plot svg").count() == 2
    titles = shown.locator(".gallery p").all_text_contents()
    # A row for each group, once for both runs
    assert sum("test images, " in title for title in titles) == 4
    assert sum("usual in training for this class" in title for title in titles) == 2
    missed = [title.split(",")[0] for title in titles if "images not recognised" in title]
    assert set(missed) == {"first", "second"}
    widths = shown.locator(".gallery img").evaluate_all(
        "pictures => pictures.map(one => one.naturalWidth)"
    )
    assert set(widths) == {8}


@needs_browser
def test_a_browser_shows_the_answer_first_and_in_its_colour(page, visit):
    seen = visit(page[1])
    first = seen.page.locator(".first > *").first
    assert first.text_content().startswith("Does first rely on the context? ")
    tone = first.get_attribute("class")
    colour = seen.style_of(f".{tone}", "borderLeftColor")
    red, green, _ = map(int, colour.strip("rgb()").split(",")[:3])
    fits = {"yes": red > 2 * green, "no": green > 1.5 * red, "unclear": abs(red - green) < 20}
    assert fits[tone]


@needs_browser
def test_on_a_phone_the_answer_stands_before_the_contents_and_a_command_breaks_between_words(
    page, visit
):
    shown = visit(page[1], **PHONE).page
    assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    places = [shown.locator(name).first.bounding_box() for name in (".yes, .no, .unclear", "nav")]
    assert places[0]["y"] + places[0]["height"] < places[1]["y"]
    assert places[0]["y"] < 200
    short = (
        "words => words.filter(word => word.textContent.length < 20).map(word => word.offsetHeight)"
    )
    heights = shown.locator(".command span").evaluate_all(short)
    assert 0 < max(heights, default=0) < 30  # one line


def test_the_same_twice(page, runs, photos, tmp_path):
    line = f"diagnose {runs / 'first'} {photos} --compare {runs / 'second'} --device cpu"
    typed(f"{line} -o {tmp_path / 'again.html'}")
    assert (tmp_path / "again.html").read_bytes() == page[1].read_bytes()


def test_one_run_with_other_images_than_another(photos, runs, tmp_path):
    other = tmp_path / "other"
    typed(f"train {photos} {TRAIN} --seed 1 -o {other}")
    result = typed(
        f"diagnose {runs / 'first'} {photos} --compare {other} -o {tmp_path / 'page.html'}"
        " --device cpu"
    )
    assert (result.stdout + (tmp_path / "page.html").read_text()).count(
        "different test images"
    ) == 2


def test_a_table(tmp_path):
    table = make_mmads(600, 10, 1.7, seed=0).frame()
    table.insert(0, EVIL, table["S1"] ** 2)
    table["word"] = "x"
    table["nearly y"] = table["y"] * 2 + 1
    table["row"] = table.index
    table.to_csv(tmp_path / "table.csv", index=False)
    output = tmp_path / "page.html"
    assert (
        "ends in .html"
        in typed(f"diagnose {tmp_path / 'table.csv'} --target y -o page.md", fails=True).output
    )
    result = typed(f"diagnose {tmp_path / 'table.csv'} --target y -o {output}")
    assert "Behaving like an effect of the label: V1." in result.output
    assert "The label over again: nearly y." in result.output
    assert "Note: not judged, as they number or identify the rows: 'row'." in result.output
    lines = result.stdout.splitlines()
    code = lines[
        lines.index("import pfdl.tabular, sklearn.linear_model") : lines.index("model.fit(X, y)")
    ]
    found: dict[str, Any] = {}
    exec("\n".join(code), found)  # the advice runs as it stands
    assert "V1" not in found["model"].feature_names_in_
    assert any(
        line.startswith("# Without V1 and nearly y: ") and "% of y is explained" in line
        for line in code
    )
    html = output.read_text()
    for words in (
        "of table.csv",
        "k = 0.05 m",
        "follows the label",
        "numeric: &#39;word",
        'ing">Behaving',
        "V1 (strong)",
    ):
        assert words in html
    assert EVIL not in html


def test_a_table_of_classes_that_nobody_selected(tmp_path):
    table = load_wine(as_frame=True).frame.assign(
        target=lambda wine: "kind " + wine["target"].astype(str)
    )
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


def test_contexts_that_a_table_names_later_are_measured_and_the_advice_runs(tmp_path, monkeypatch):
    """The run was trained without contexts; the table has those of all its images."""
    monkeypatch.chdir(tmp_path)
    lines = ["path,label,split,place"]
    for part, usual, rare in (("train", 40, 6), ("test", 40, 40)):
        for label, name in enumerate(("cat", "dog")):
            for context, colour in enumerate(("red", "blue")):
                count = usual if label == context else rare
                folder = tmp_path / "photos" / part / name
                seed = 10 * label + context + 100 * (part == "test")
                draw(folder / colour, count, seed=seed, brightness=10 * label, channel=2 * context)
                for number in range(count):
                    (folder / colour / f"{number}.png").rename(folder / f"{colour}{number}.png")
                    lines.append(f"{part}/{name}/{colour}{number}.png,{name},{part},{colour}")
    (tmp_path / "photos" / "table.csv").write_text("\n".join(lines))
    typed(f"train photos {FAST.replace('--epochs 1', '--epochs 15')} -o plain")
    result = typed("diagnose plain photos/table.csv --columns context=place --device cpu")
    assert "The split has no contexts; the data names those of " in result.output
    assert "Does plain rely on the context? YES" in result.output
    advised = result.output.partition("  pfdl train ")[2].splitlines()[0]
    assert "--contexts known" in advised
    again = typed(f"train {advised} --device cpu --no-export")
    assert "plain-groups" in again.output


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([f"day {number}" for number in range(60)], "Note: The number of unique classes"),
        ([1e308, -1e308] * 30, "their squares leave the range of floats"),
    ],
)
def test_what_libraries_warn_of_is_a_note_or_a_sentence(column, words, tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "y"])
    table["y" if isinstance(column[0], str) else "a"] = column
    table.to_csv(tmp_path / "table.csv", index=False)
    result = typed(
        f"diagnose {tmp_path / 'table.csv'} --target y -o {tmp_path / 'page.html'}",
        fails="squares" in words,
    )
    assert words in result.output


def test_a_sentence_names_the_first_of_very_many_columns(tmp_path):
    names = [f"column-{number}" for number in range(9_000)] + ["x" * 9_000]
    (tmp_path / "table.csv").write_text(",".join(names) + "\n")
    shown = typed(f"diagnose {tmp_path / 'table.csv'} --target y", fails=True).output
    assert "has no column 'y'; it has 'column-0'" in shown
    assert len(shown) < 1_000
