"""The pages of ``pfdl diagnose`` in a real browser. Skipped where there is no Chromium."""

from dataclasses import replace

import numpy as np
import pytest

import pfdl
from pfdl.data.context_images import ContextImages
from pfdl.diagnosis import Gap, measure_accuracy
from pfdl.report import diagnosis_page
from pfdl.report.page import render
from pfdl.vision.config import TrainingConfig
from pfdl.vision.diagnosis import ImageDiagnosis
from tests.vision.tiny_images import tiny_data

from .browsing import HOSTILE, PHONE, browser, needs_browser, visit  # noqa: F401, as fixtures

pytestmark = needs_browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Two models on the same images, with hostile names; their features are made up."""
    folder = tmp_path_factory.mktemp("diagnosis")
    source, manifest = tiny_data()
    images = ContextImages(source, manifest, "test", size=8)
    rows = tuple(row._replace(context=HOSTILE) if row.context == "red" else row for row in manifest.rows_of("test"))
    labels, contexts = np.array([row.class_name for row in rows]), np.array([row.context for row in rows])
    generator = np.random.default_rng(0)
    both = {}
    for name in ("first", "second"):
        features = generator.normal(size=(len(rows), 12)) + 2 * (contexts == HOSTILE)[:, None]
        answers = np.where(generator.random(len(rows)) < 0.5, generator.permutation(labels), labels)
        usual = {"bright": "blue", "dark": HOSTILE}
        training = {(label, place): 90 if usual[label] == place else 10 for label in usual for place in usual.values()}
        found = pfdl.diagnose(features, labels, contexts, predictions=answers, training=training)
        found = replace(found, gap=Gap(1.0, len(rows), found.accuracies.overall, len(rows), in_training_mixture=1.0))
        both[name] = ImageDiagnosis(
            folder=folder / name,
            training=TrainingConfig("small", image_size=8),
            found=found,
            rows=rows,
            contexts=tuple(contexts.tolist()),
            contexts_are="known",
            predictions=tuple(answers.tolist()),
            images=images,
            validation=measure_accuracy(np.ones(len(rows), dtype=bool), labels, contexts),
        )
    page = folder / "diagnosis.html"
    page.write_text(render(diagnosis_page.build_page(both, HOSTILE)), encoding="utf-8")
    return page


def test_pictures_and_the_curve_are_drawn_quietly(visit, path):  # noqa: F811
    seen = visit(path)
    page = seen.page
    assert page.locator(".plot svg").count() == 1
    titles = page.locator(".gallery p").all_text_contents()
    assert sum("usual in training for" in title for title in titles) == 2  # a row for each context, once for both runs
    assert sum("worst groups" in title for title in titles) == 6
    widths = page.locator(".gallery img").evaluate_all("pictures => pictures.map(picture => picture.naturalWidth)")
    assert set(widths) == {8}
    assert page.locator("td, th", has_text=HOSTILE).count() > 0
    assert page.evaluate("window.hacked") is None
    assert seen.complaints == []
    assert [one for one in seen.requests if not one.startswith("data:")] == [path.as_uri()]


def test_the_answer_comes_first_and_in_its_colour(visit, path):  # noqa: F811
    seen = visit(path)
    first = seen.page.locator(".first > *").first
    assert first.text_content().startswith("Does first rely on the context? ")
    tone = first.get_attribute("class")
    assert tone in ("yes", "no", "unclear")
    red, green, _ = (int(part) for part in seen.style_of(f".{tone}", "borderLeftColor").strip("rgb()").split(",")[:3])
    assert {"yes": red > 2 * green, "no": green > 1.5 * red, "unclear": abs(red - green) < 20}[tone]


def test_on_a_phone_the_answer_stands_before_the_contents_and_a_command_breaks_between_words(visit, path):  # noqa: F811
    page = visit(path, **PHONE).page
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    places = [page.locator(name).first.bounding_box() for name in (".yes, .no, .unclear", "nav")]
    assert places[0]["y"] + places[0]["height"] < places[1]["y"]
    assert places[0]["y"] < 200
    short = "words => words.filter(word => word.textContent.length < 20).map(word => word.offsetHeight)"
    heights = page.locator(".command span").evaluate_all(short)
    assert heights
    assert max(heights) < 30  # one line
