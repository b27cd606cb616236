"""A finder of one's own has a name, and is judged like the library's; so are one's own contexts."""

import numpy as np
import pytest

from pfdl.contexts import (
    InferredContexts,
    Proposal,
    find_by_jtt,
    find_contexts,
    finders,
    group_report,
    judging,
    list_contexts,
    register_contexts,
    sample,
)
from pfdl.vision import TrainingConfig
from tests.contexts.objects import in_contexts


@pytest.fixture
def register(monkeypatch):
    """Register a finder for one test alone."""
    finders._known()
    monkeypatch.setattr(finders, "_finders", dict(finders._finders))
    return register_contexts


def by_sum(features, labels, *, features_read=20):
    """Split by the sum of some features."""
    return (features[:, :features_read].sum(axis=1) > 0).astype(int)


def by_chance(features, labels, *, seed):
    """Split at random, differently for every choice of features."""
    rng = np.random.default_rng((seed, int(abs(features[0, 0]) * 1e6)))
    return rng.integers(2, size=len(labels))


def one_direction(seed=0, samples=1200):
    """Two classes, mostly in a context of their own that moves half of the features."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=samples)
    contexts = np.where(rng.random(samples) < 0.9, labels, 1 - labels)
    features = rng.normal(size=(samples, 40))
    features[:, :20] += 6.0 * contexts[:, None] - 3.0
    features[:, 20:] += 0.25 * labels[:, None]
    return features, labels, contexts


def test_a_finder_of_ones_own_is_judged_by_the_same_checks(register):
    features, labels, contexts = one_direction()
    register("by-sum", by_sum)
    found = find_contexts(features, labels, method="by-sum", features_read=40)
    assert found.method == "by-sum"
    assert found.sentence.startswith("Found 2 contexts, by by-sum: halves of the features agree")
    assert group_report(labels, found.contexts, contexts).ari > 0.95


def test_the_agreement_of_halves_is_measured_where_a_finder_does_not_state_it(register):
    features, labels, _ = one_direction()
    register("by-chance", by_chance)
    found = find_contexts(features, labels, method="by-chance")
    assert found.number == 1
    assert "halves of the features agree too little" in found.sentence
    assert abs(found.tried[0].stability) < 0.05


def test_what_a_finder_says_of_draws_is_kept(register):
    features, labels, contexts = one_direction()
    draws = np.linspace(1.0, 2.0, len(labels))

    def told(features, labels):
        return Proposal(contexts, "Told by a friend.", draws=draws, stability=1.0)

    register("told", told)
    found = find_contexts(features, labels, method="told")
    assert found.sentence.startswith("Found 2 contexts, told by a friend: halves")
    assert found.draws.tolist() == draws.tolist()


def test_contexts_of_ones_own_are_judged_by_the_same_checks():
    features, labels, contexts = in_contexts()
    names = np.array(["forest", "lake", "sand", "snow"])[contexts]
    found = find_contexts(features, labels, contexts=names)
    assert found.method == "given"
    assert found.contexts.tolist() == contexts.tolist()
    assert found.sentence.startswith("Found 4 contexts, your own: they go with the class")
    shuffled = np.random.default_rng(0).permutation(names)
    refused = find_contexts(features, labels, contexts=shuffled)
    assert refused.number == 1
    assert "Rejected your own: they do not go with the class" in refused.sentence


def test_contexts_from_logits_can_be_judged_too():
    features, labels, contexts = in_contexts(dominant=0.95)
    by_network = find_by_jtt(contexts, labels)
    found = find_contexts(features, labels, contexts=by_network.contexts)
    assert found.tried[0].association == pytest.approx(0.0, abs=0.1)


def test_a_finder_of_logits_is_asked_by_name_and_takes_its_settings():
    logits = np.eye(3)[[0, 0, 1, 2]]
    labels = [0, 1, 1, 2]
    found = find_contexts(logits, labels, method="jtt", upweight=50)
    assert isinstance(found, InferredContexts)
    assert (found.method, found.contexts.tolist()) == ("jtt", [0, 1, 0, 0])
    assert found.draws.tolist() == [1, 51, 1, 1]


def test_of_several_proposals_the_largest_that_passes_is_taken(register):
    features, labels, contexts = in_contexts()

    def nested(features, labels):
        for number in (2, 4, 3):
            yield Proposal(contexts % number, stability=1.0)

    register("nested", nested)
    found = find_contexts(features, labels, method="nested", confirmation=0.5)
    assert found.contexts.tolist() == contexts.tolist()
    assert find_contexts(features, labels, method="nested", confirmation=0).number == 2


def test_larger_numbers_are_judged_by_samples_that_hold_enough_of_every_group(
    register, monkeypatch
):
    """Of a sample that was drawn before the contexts were known, rare groups may have nothing."""
    features, labels, contexts = in_contexts(samples=3000, dominant=0.97)
    monkeypatch.setattr(sample, "MOST_SAMPLES", 600)
    judged = []

    def note(*arguments, counts, **settings):
        judged.append((arguments, counts))
        return confirm(*arguments, counts=counts, **settings)

    confirm = judging.confirm
    monkeypatch.setattr(judging, "confirm", note)
    nearest = np.stack([features[contexts == k].mean(axis=0) for k in range(4)])

    def nested(features, labels):
        for number in (2, 4):

            def assign(z, y, number=number):
                scale = nearest / features.std()
                return (z[:, None] - scale).__pow__(2).sum(axis=2).argmin(axis=1) % number

            yield Proposal(assign(features, labels), stability=1.0, assign=assign)

    register("nested", nested)
    find_contexts(features, labels, method="nested")
    assert len(judged) == 2
    for (_, _, _, y, context), counts in judged:
        assert counts.sum() == 3000
        rarest = np.bincount(y * counts.shape[1] + context, minlength=counts.size)
        assert (rarest >= np.minimum(counts.ravel(), 600 // counts.size)).all()


def test_a_finder_that_says_nothing_of_others_is_refused_where_there_are_others(
    register, monkeypatch
):
    features, labels, _ = one_direction()
    monkeypatch.setattr(sample, "MOST_SAMPLES", 600)
    register("by-sum", by_sum)
    with pytest.raises(ValueError, match=r"contexts of 600 of 1200 samples; for more than that"):
        find_contexts(features, labels, method="by-sum", features_read=40)


@pytest.mark.parametrize(
    ("name", "finder", "error", "message"),
    [
        ("two words", by_sum, ValueError, "give letters, digits and hyphens"),
        ("pooled", by_sum, ValueError, "there is a finder 'pooled' already"),
        ("auto", by_sum, ValueError, "there is a finder 'auto' already"),
        ("mine", "by_sum", TypeError, "the finder 'mine' is a str; give a function"),
        ("mine", lambda images, labels: labels, TypeError, "must be 'features' or 'logits'"),
    ],
)
def test_what_cannot_be_registered_is_refused(register, name, finder, error, message):
    with pytest.raises(error, match=message):
        register(name, finder)


def test_a_finder_that_gives_too_few_contexts_is_refused(register):
    features, labels, _ = one_direction()
    register("short", lambda features, labels: labels[:5])
    with pytest.raises(ValueError, match=r"contexts of shape \(5,\) for 1200 samples"):
        find_contexts(features, labels, method="short")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "poled"}, "method is 'poled'; choose from auto, .*early.* mean 'pooled'"),
        ({"method": "jtt", "upwait": 3}, "the finder 'jtt' has no setting upwait; it has upweight"),
        ({"weight": 3}, "the finder 'auto' has no setting weight; it has none"),
        ({"contexts": [0, 1]}, "there are 1200 samples and 2 contexts"),
    ],
)
def test_what_a_finder_does_not_know_is_refused(settings, message):
    features, labels, _ = one_direction()
    with pytest.raises(ValueError, match=message):
        find_contexts(features, labels, **settings)


def test_registered_finders_are_listed_and_may_be_named_in_a_config(register):
    register("by-sum", by_sum)
    listed = {finder.name: finder for finder in list_contexts()}
    assert listed["by-sum"].summary == "Split by the sum of some features."
    assert listed["by-sum"].settings == ("features_read=20",)
    assert listed["jtt"].reads == "logits"
    assert [name for name, finder in listed.items() if finder.automatic] == [
        "early",
        "misled",
        "pooled",
        "within",
    ]
    config = TrainingConfig(
        contexts="inferred", infer_by="by-sum", infer_settings={"features_read": 8}
    )
    assert config.infer_by == "by-sum"
    with pytest.raises(ValueError, match="has no setting upweight"):
        TrainingConfig(contexts="inferred", infer_by="by-sum", infer_settings={"upweight": 8})


def test_an_installed_package_offers_finders_by_an_entry_point(monkeypatch):
    class Point:
        name = "packaged"

        @staticmethod
        def load():
            return by_sum

    monkeypatch.setattr(finders, "entry_points", lambda group: [Point] * (group == "pfdl.contexts"))
    finders._load_entry_points.cache_clear()
    try:
        assert finders.get_finder("packaged") is by_sum
    finally:
        finders._load_entry_points.cache_clear()
