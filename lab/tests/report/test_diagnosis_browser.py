"""The pages of ``pfdl diagnose`` in a real browser. Skipped where there is no Chromium."""

import numpy as np
import pytest
from tests.vision.tiny_images import tiny_data

import pfdl
from pfdl.data import make_mmads
from pfdl.report import diagnosis_page, table_page
from pfdl.report.page import render
from pfdl.tabular import SelectionScreen
from pfdl.vision.config import TrainingConfig
from pfdl.vision.diagnosis import ImageDiagnosis

from .made_up import HOSTILE, make_training
from .test_browser import CHROMIUM, browser, visit  # noqa: F401, as fixtures

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def page_of_images(tmp_path_factory):
    """Two models on the same images, with hostile names; their features are made up."""
    from pfdl.data.context_images import ContextImages

    folder = tmp_path_factory.mktemp("diagnosis")
    source, manifest = tiny_data()
    images = ContextImages(source, manifest, "test", size=8)
    rows = tuple(row._replace(context=HOSTILE) if row.context == "red" else row for row in manifest.rows_of("test"))
    labels, contexts = np.array([row.class_name for row in rows]), np.array([row.context for row in rows])
    generator = np.random.default_rng(0)
    both = []
    for name in ("first", "second"):
        make_training(folder / name)
        features = generator.normal(size=(len(rows), 12)) + 2 * (contexts == HOSTILE)[:, None]
        answers = np.where(generator.random(len(rows)) < 0.3, generator.permutation(labels), labels)
        usual = {"bright": "blue", "dark": HOSTILE}
        training = {
            (label, context): 90 if usual[label] == context else 10 for label in usual for context in usual.values()
        }
        found = pfdl.diagnose(features, labels, contexts, predictions=answers, training=training)
        training, places = TrainingConfig("cn", image_size=8), tuple(contexts.tolist())
        answers = tuple(answers.tolist())
        both.append(ImageDiagnosis(folder / name, training, found, rows, places, "known", usual, answers, images))
    problems = []
    path = folder / "diagnosis.html"
    path.write_text(render(diagnosis_page.build_page(both, HOSTILE, problems)), encoding="utf-8")
    assert problems == []
    return path


def test_images_heatmaps_and_curves_are_drawn_quietly(visit, page_of_images):  # noqa: F811
    seen = visit(page_of_images)
    page = seen.page
    page.wait_for_selector(".plot svg")
    assert page.locator(".plot .heatmap canvas").count() == 4
    assert page.locator(".plot .trace").count() == 6  # two of the shift, four of the features
    assert page.locator(".plot .band").count() == 2
    widths = page.locator(".gallery img").evaluate_all("pictures => pictures.map(picture => picture.naturalWidth)")
    assert widths == [8] * (48 + 20)  # ten examples of the worst group of each
    assert page.locator("td, th", has_text=HOSTILE).count() > 0
    assert page.evaluate("window.hacked") is None
    assert seen.complaints == []
    assert [one for one in seen.requests if not one.startswith("data:")] == [page_of_images.as_uri()]


def test_the_answer_comes_first_and_in_its_colour(visit, page_of_images):  # noqa: F811
    seen = visit(page_of_images)
    first = seen.page.locator(".first > *").first
    assert first.text_content().startswith("Does first rely on the context? ")
    tone = first.get_attribute("class")
    assert tone in ("yes", "no", "unclear")
    red, green, _ = (int(part) for part in seen.colour_of(f".{tone}", "borderLeftColor").strip("rgb()").split(",")[:3])
    assert {"yes": red > 2 * green, "no": green > 1.5 * red, "unclear": abs(red - green) < 20}[tone]


def test_on_a_phone_the_answer_stands_before_the_contents_and_a_command_breaks_between_words(
    visit,  # noqa: F811
    page_of_images,
):
    page = visit(page_of_images, viewport={"width": 390, "height": 844}).page
    places = [page.locator(name).first.bounding_box() for name in (".yes, .no, .unclear", "nav")]
    assert places[0]["y"] + places[0]["height"] < places[1]["y"]
    assert places[0]["y"] < 200
    short = "words => words.filter(word => word.textContent.length < 20).map(word => word.offsetHeight)"
    heights = page.locator(".command span").evaluate_all(short)
    assert heights
    assert max(heights) < 30  # one line


def test_heatmaps_stand_side_by_side_or_below_each_other(visit, page_of_images):  # noqa: F811
    def tops(width):
        page = visit(page_of_images, viewport={"width": width, "height": 900}).page
        page.wait_for_selector(".plot svg")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        places = page.locator(".plot:has(.heatmap canvas)").evaluate_all(
            "plots => plots.map(plot => plot.parentElement.getBoundingClientRect().top)"
        )
        return places[:2]

    wide, narrow = tops(1200), tops(390)
    assert wide[0] == wide[1]
    assert narrow[0] < narrow[1]


def test_heatmaps_change_colours_with_the_page(visit, page_of_images):  # noqa: F811
    page = visit(page_of_images, color_scheme="light").page
    page.wait_for_selector(".plot svg")
    pixels = "() => document.querySelector('.heatmap canvas').toDataURL()"
    light = page.evaluate(pixels)
    page.locator("#theme").click()
    assert page.evaluate(pixels) != light


def test_a_cell_of_a_heatmap_tells_its_features_and_their_correlation(visit, page_of_images):  # noqa: F811
    page = visit(page_of_images).page
    page.locator(".plot .frames").first.hover(position={"x": 3, "y": 3})
    words = page.locator(".plot .tooltip:not([hidden])").text_content()
    assert words.startswith("feature ")
    assert words.endswith("1.00")  # a feature with itself


def test_a_point_of_a_table_tells_its_column(visit, tmp_path):  # noqa: F811
    table = make_mmads(600, 10, 1.7, seed=0).frame().rename(columns={"S1": HOSTILE})
    picture = SelectionScreen().fit(table.drop(columns="y"), table["y"]).screening_plot()
    path = tmp_path / "table.html"
    path.write_text(render(table_page.build_page(picture, "table.csv", "y", ["a note."])), encoding="utf-8")
    seen = visit(path)
    page = seen.page
    page.locator(".plot").scroll_into_view_if_needed()
    page.locator(".plot .trace >> nth=0").locator(".points path >> nth=0").hover(force=True)
    assert HOSTILE in page.locator(".tooltip").text_content()
    assert page.evaluate("window.hacked") is None
    assert seen.complaints == []
