from itertools import product

import numpy as np
import pytest

from pfdl.diagnosis import compare_reliance, measure_reliance, usual_contexts_of
from pfdl.diagnosis.reliance import goes_together

USUAL = {"cow": "grass", "camel": "sand", "gull": "sea"}
CLASSES, CONTEXTS = np.array(list(USUAL)), np.array(list(USUAL.values()))


def draw(n=900, follow=0.0, seed=0, hard=0.0):
    """A model that follows the context in a share of the images; in one context all images may be
    harder.
    """
    rng = np.random.default_rng(seed)
    y, c = rng.integers(3, size=(2, n))
    answers = np.where(rng.random(n) < follow, c, y)
    answers = np.where(
        (c == 2) & (rng.random(n) < hard), (y + 1 + rng.integers(2, size=n)) % 3, answers
    )
    return CLASSES[y], CONTEXTS[c], CLASSES[answers]


def test_the_answer_is_right_over_many_draws():
    honest = answers_over_draws(follow=0.0)
    assert "yes" not in honest
    assert honest.count("no") > 50
    assert answers_over_draws(follow=0.3) == ["yes"] * 60


def answers_over_draws(follow):
    drawn = [draw(n=2000, follow=follow, hard=0.3, seed=seed) for seed in range(60)]
    return [measure_reliance(*one, USUAL).answer for one in drawn]


def test_the_effect_is_that_of_a_regression_image_by_image():
    labels, contexts, answers = draw(follow=0.3, hard=0.4, seed=5)
    found = measure_reliance(labels, contexts, answers, USUAL)
    right = (labels == answers).astype(float)
    home = np.array([USUAL[label] for label in labels]) == contexts
    design = np.column_stack(
        [home, labels[:, None] == CLASSES, (contexts[:, None] == CONTEXTS)[:, 1:]]
    ).astype(float)
    coefficients = np.linalg.lstsq(design, right, rcond=None)[0]
    assert found.effect == pytest.approx(coefficients[0], abs=1e-9)
    rest = right.copy()
    for label, context in product(CLASSES, CONTEXTS):
        group = (labels == label) & (contexts == context)
        rest[group] -= right[group].mean()
    inverse = np.linalg.pinv(design.T @ design)
    sandwich = inverse @ (design.T * rest**2) @ design @ inverse
    assert found.effect_error == pytest.approx(np.sqrt(sandwich[0, 0]), rel=0.05)
    assert found.in_usual == pytest.approx(right[home].mean())
    assert found.elsewhere == pytest.approx(right[~home].mean())


def test_a_context_that_is_hard_for_all_is_no_reliance():
    # Most cows stand at the sea here, so that the plain difference is mostly that of hard images.
    labels, contexts, answers = draw(n=6000, hard=0.8, seed=1)
    chosen = (labels != "gull") | (np.random.default_rng(0).random(6000) < 0.1)
    found = measure_reliance(labels[chosen], contexts[chosen], answers[chosen], USUAL)
    assert found.difference > 0.1
    assert found.answer == "no"
    assert "once hard classes and contexts are allowed for" in found.sentences()[0]


def test_where_all_classes_have_the_same_usual_context_nobody_can_tell():
    labels, contexts, answers = draw(n=3000, hard=0.8)
    found = measure_reliance(labels, contexts, answers, dict.fromkeys(USUAL, "grass"))
    assert np.isnan(found.effect)
    assert found.answer == "cannot tell"
    assert "look the same" in found.sentences()[0]
    # Where yes is impossible, no would be false comfort
    even = measure_reliance(labels, contexts, labels, dict.fromkeys(USUAL, "grass"))
    assert even.answer == "cannot tell"


def test_a_model_that_is_better_outside_the_usual_contexts_gets_no_all_clear():
    labels, contexts, answers = draw(n=3000, follow=0.8)
    swapped = {"cow": "sand", "camel": "sea", "gull": "grass"}
    found = measure_reliance(labels, contexts, answers, swapped)
    assert found.effect < -0.2
    assert found.answer == "cannot tell"
    assert "mixed otherwise?" in found.sentences()[0]


def test_contexts_of_one_class_each_are_compared_plainly_and_with_caution():
    labels, contexts, answers = draw(n=3000, follow=0.5)
    home = np.array(
        [USUAL[label] == context for label, context in zip(labels, contexts, strict=True)]
    )
    own = np.array(
        [
            f"{label}, {'usual' if here else 'elsewhere'}"
            for label, here in zip(labels, home, strict=True)
        ]
    )
    found = measure_reliance(labels, own, answers, {label: f"{label}, usual" for label in USUAL})
    assert found.answer == "yes"
    assert not found.separable
    assert found.effect == pytest.approx(found.difference)
    assert found.effect_error == pytest.approx(found.standard_error, rel=0.1)
    assert "may be the cause" in " ".join(found.sentences())


def test_the_sentences_name_figures_and_classes():
    labels, contexts, answers = draw(n=3000, follow=0.6)
    answers = np.where(labels == "gull", labels, answers)  # gulls are recognised everywhere
    words = " ".join(measure_reliance(labels, contexts, answers, USUAL).sentences())
    assert words.startswith(
        "Yes, the model relies on the context: 100 % right in a class's usual context, "
    )
    assert "Most affected: " in words
    assert "cow (100 % in grass, " in words
    assert "gull (" not in words
    unsure = measure_reliance(*draw(n=30, follow=0.08, seed=3), USUAL)
    assert unsure.answer == "cannot tell"
    (sentence,) = unsure.sentences()
    assert "are too few." in sentence


def test_without_two_places_there_is_nothing_to_compare():
    one = np.array(["cow"])
    assert measure_reliance(one, np.array(["grass"]), one, USUAL) is None
    assert measure_reliance(one, np.array(["sand"]), one, USUAL) is None


def test_the_usual_context_is_the_one_that_goes_with_the_class():
    # As in CelebA: most of either class are women, but blond goes with women and dark with men.
    training = {
        ("blond", "woman"): 94,
        ("blond", "man"): 6,
        ("dark", "woman"): 54,
        ("dark", "man"): 46,
    }
    assert usual_contexts_of(training) == {"blond": "woman", "dark": "man"}
    assert usual_contexts_of(dict.fromkeys(training, 50)) == {}
    labels, contexts, answers = draw()
    # The others are neither there nor elsewhere
    found = measure_reliance(labels, contexts, answers, {"cow": "grass"})
    assert found.samples_elsewhere == np.sum((labels == "cow") & (contexts != "grass"))


def test_association_is_seen_and_chance_is_not():
    assert goes_together(
        {("cow", "grass"): 60, ("cow", "sand"): 20, ("camel", "grass"): 20, ("camel", "sand"): 60}
    )
    rng = np.random.default_rng(0)
    for _ in range(200):
        counts = rng.multinomial(300, [1 / 9] * 9).tolist()
        assert not goes_together(dict(zip(product(range(3), repeat=2), counts, strict=True)))
    assert not goes_together({("cow", "grass"): 60, ("camel", "grass"): 60})


def test_two_models_are_compared_on_the_same_images():
    labels, contexts, relies = draw(follow=0.4)
    _, _, less = draw(follow=0.1)
    found = compare_reliance(labels, contexts, relies, less, USUAL)
    one, other = (measure_reliance(labels, contexts, answers, USUAL) for answers in (relies, less))
    assert found.difference == pytest.approx(one.effect - other.effect)
    assert found.standard_error < np.hypot(one.effect_error, other.effect_error)
    assert found.sentence("erm", "pfdl").startswith(
        "erm relies more on the context than pfdl (difference "
    )
    assert (
        compare_reliance(labels, contexts, less, relies, USUAL)
        .sentence("a", "b")
        .startswith("b relies more")
    )
    same = compare_reliance(labels, contexts, relies, relies, USUAL)
    assert same.difference == 0
    assert same.sentence("erm", "pfdl").startswith(
        "No difference is shown in how much erm and pfdl rely on the "
    )
    nothing = compare_reliance(labels, contexts, relies, less, dict.fromkeys(USUAL, "grass"))
    assert nothing.sentence("erm", "pfdl").startswith("Cannot tell which")
