"""A mark in a corner is found by the colours of places, and the map shows the corner."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from pfdl.contexts import (
    context_map,
    find_contexts,
    group_report,
    image_statistics,
    position_colours,
)
from pfdl.contexts.confirmation import errors_for_tries
from pfdl.contexts.positions import GRID
from tests.contexts.objects import in_contexts

CORNERS = ((1, 1), (1, 23), (23, 1), (23, 23))


def marked(seed=0, samples=1600, strength=0.93):
    """Noisy pictures whose class is a faint wave, with a mark in a corner that goes with the class.

    Squares like the mark lie about in the middle, so that the mark changes what the whole image is
    made of by little.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=samples)
    corners = np.where(rng.random(samples) < strength, labels, rng.integers(4, size=samples))
    rows, columns = np.mgrid[:28, :28] / 28
    directions = [rows, columns, rows + columns, rows - columns]
    waves = np.stack([np.sin(2 * np.pi * direction) for direction in directions])
    tints = 0.1 * rng.normal(size=(samples, 3, 1, 1))
    noise = 0.1 * rng.normal(size=(samples, 3, 28, 28))
    images = 0.5 + tints + noise + 0.03 * waves[labels][:, None]
    for image, corner in zip(images, corners, strict=True):
        for down, right in rng.integers(6, 18, size=(6, 2)):
            image[:, down : down + 4, right : right + 4] += 1.0
        down, right = CORNERS[corner]
        image[:, down : down + 4, right : right + 4] += 1.0
    return torch.from_numpy(images).float(), labels, corners


@pytest.fixture(scope="module")
def found():
    images, labels, corners = marked()
    return images, labels, corners, find_contexts(TensorDataset(images, torch.tensor(labels)))


def test_a_mark_in_a_corner_is_found_by_positions_alone(found):
    _, labels, corners, contexts = found
    assert contexts.description == "positions", contexts.sentence
    assert group_report(labels, contexts.contexts, corners).ari > 0.95
    assert "Found 4 contexts by the colours of places in the images" in contexts.sentence
    assert {trial.description for trial in contexts.tried} == {"statistics", "positions"}


def test_without_a_mark_nothing_is_found():
    images, labels, _ = marked(samples=800, strength=0.0)
    contexts = find_contexts(images, labels)
    assert contexts.number == 1, contexts.sentence
    assert contexts.description == ""
    assert "no contexts were confirmed by colours and textures" in contexts.sentence
    assert "no contexts were confirmed by the colours of places" in contexts.sentence


def test_features_come_first_and_images_after_them(found):
    images, labels, _, contexts = found
    noise = np.random.default_rng(0).normal(size=(len(labels), 12))
    both = find_contexts(noise, labels, images=images)
    assert both.contexts.tolist() == contexts.contexts.tolist()
    assert both.tried[0].description == "features"
    telling, others, _ = in_contexts(samples=len(labels))
    assert find_contexts(telling, others, images=images).description == "features"


def test_images_described_by_a_network_are_described_otherwise_where_it_sees_nothing(found):
    images, labels, _, contexts = found

    def blind(batch):
        return image_statistics(torch.rand(len(batch), 3, 8, 8))

    assert find_contexts(images, labels, describe=blind).description == contexts.description


def test_the_map_shows_where_the_context_is_seen(found):
    images, labels, _, contexts = found
    shown = context_map(images, labels, contexts.contexts)
    corners = np.zeros((GRID, GRID), dtype=bool)
    corners[np.ix_([0, -1], [0, -1])] = True
    assert shown[corners].min() > 0.2
    assert shown[~corners].max() < 0.1


def test_the_map_is_a_share_of_variance_within_classes():
    rng = np.random.default_rng(0)
    labels, contexts = rng.integers(2, size=(2, 300))
    images = torch.from_numpy(rng.normal(size=(300, 1, 7, 7)))
    images[:, 0, 2, 3] += torch.from_numpy(5.0 * labels + 2.0 * contexts)
    shown = context_map(images, labels, contexts)
    cell = images[:, 0, 2, 3].float().double().numpy()
    within_classes = squares_within(cell, labels)
    within_groups = squares_within(cell, 2 * labels + contexts)
    assert shown[2, 3] == pytest.approx(1 - within_groups / within_classes)


def squares_within(values, parts):
    """Return the sum of squares about the means of the parts."""
    return sum(
        ((own := values[parts == part]) - own.mean()) @ (own - own.mean()) for part in set(parts)
    )


def test_the_map_of_images_that_are_all_alike_is_empty():
    assert context_map(torch.ones(4, 1, 7, 7), [0, 0, 1, 1], [0, 1, 0, 1]).max() == 0.0


def test_positions_are_means_of_cells():
    images = torch.arange(2 * 3 * 14 * 14).reshape(2, 3, 14, 14)
    colours = position_colours(images)
    assert colours.shape == (2, 147)
    assert colours[1, 49 + 7 * 2 + 5] == images[1, 1, 4:6, 10:12].float().mean()


def test_several_tries_together_pass_by_chance_no_oftener_than_one():
    from scipy.stats import norm

    assert errors_for_tries(1) == pytest.approx(3.0)
    assert 3 * norm.sf(errors_for_tries(3)) == pytest.approx(norm.sf(3.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: position_colours(torch.rand(3, 8, 8)), r"have shape \(3, 8, 8\)"),
        (lambda: context_map(torch.rand(3, 3, 8, 8), [0, 1], [0, 1]), "3 images and 2 labels"),
        (
            lambda: find_contexts(np.eye(4), [0, 1, 0, 1], images=torch.rand(3, 3, 8, 8)),
            "labels",
        ),
        (
            lambda: find_contexts(np.eye(4), [0, 1, 0, 1], images=np.eye(4)),
            "images must be as many",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
