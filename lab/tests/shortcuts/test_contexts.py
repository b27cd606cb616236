"""The study of shortcuts on a small generated set: the same path as on photographs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from pfdl_lab.shortcuts import alarms, embedding
from pfdl_lab.shortcuts.pools import CHANGES, RATIO, SIZE, draw, load_pool
from pfdl_lab.shortcuts.run import ShortcutsConfig, run, summarise


def write_cache(folder):
    """Write features of two classes of 600 images, in a context of their own and with a cue."""
    rng = np.random.default_rng(0)
    labels, contexts = rng.integers(2, size=(2, 1200))
    features = rng.normal(size=(1200, 300))
    directions = rng.choice([-1.0, 1.0], size=(2, 300))
    features += 0.25 * np.outer(2 * labels - 1, directions[0])
    places = np.where(contexts == 1, "seashore", "barn")
    classes = np.where(labels == 1, "dog_hound", "dog_bull")
    names = [
        f"petscapes/{a}/{b}/{i}.jpg" for i, (a, b) in enumerate(zip(classes, places, strict=True))
    ]
    in_context = features + 0.5 * np.outer(2 * contexts - 1, directions[1])
    np.savez(folder / "scenes.npz", features=in_context, names=np.array(names))
    np.savez(folder / "cats.npz", features=features, names=np.array(names))
    np.savez(folder / "cats_soft.npz", features=features + directions[1], names=np.array(names))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    write_cache(folder)
    return folder


@pytest.mark.parametrize("name", ["scenes", "cats_soft"])
def test_a_draw_has_a_shortcut_and_shares_no_image_between_its_sets(cache, name):
    pool = load_pool(name, cache)
    drawn = draw(pool, 3)
    counts = np.bincount(2 * drawn.train.labels + drawn.train.contexts, minlength=4).reshape(2, 2)
    assert counts[0, 0] / counts[0, 1] == pytest.approx(RATIO, rel=0.05)
    assert counts[1, 1] / counts[1, 0] == pytest.approx(RATIO, rel=0.05)
    assert (drawn.usual.labels == drawn.usual.contexts).mean() > 0.85
    assert (drawn.broken.labels == drawn.broken.contexts).mean() < 0.15
    rows = [part.features[:, :5].round(9) for part in (drawn.train, drawn.usual, drawn.broken)]
    if name == "scenes":  # a cue that is put on changes features, and images are drawn before
        seen = np.concatenate(rows)
        assert len(np.unique(seen, axis=0)) == len(seen)
    again = draw(pool, 3)
    assert np.array_equal(again.train.features, drawn.train.features)


def test_a_control_has_none_and_wrong_labels_are_in_training_alone(cache):
    pool = load_pool("scenes", cache)
    right = draw(pool, 3, control=True)
    wrong = draw(pool, 3, control=True, wrong=0.1)
    assert abs((right.train.labels == right.train.contexts).mean() - 0.5) < 0.02
    assert 0.05 < (right.train.labels != wrong.train.labels).mean() < 0.15
    assert np.array_equal(right.broken.labels, wrong.broken.labels)


def test_the_study_is_run_once_and_summed_up(cache, tmp_path, capsys):
    config = ShortcutsConfig(sets=("scenes",), draws=1, first_draw=0, wrong=(0.1,), peers=False)
    results = run(config, None, cache, tmp_path)
    assert set(results["method"]) == {"plain", "classes", "inferred", "true", "k-means"}
    assert set(results["kind"]) == {"shortcut", "control", "control, 10 % wrong"}
    figures = summarise(results)
    assert figures["gain of the true contexts"] > 5
    assert figures["share of the gain, inferred"] > 0.6
    assert figures["alarms of 1, control"] == 0
    assert figures["alarms of 1, control, 10 % wrong"] == 0
    capsys.readouterr()
    again = run(replace(config, wrong=()), None, cache, tmp_path)
    assert capsys.readouterr().out == ""
    pd.testing.assert_frame_equal(again, results, check_dtype=False)


def test_published_methods_take_the_logits_of_a_short_training(cache, tmp_path):
    config = ShortcutsConfig(sets=("cats_soft",), draws=1, first_draw=0, wrong=())
    results = run(config, None, cache, tmp_path)
    peers = results[results["method"].isin(["jtt", "spare", "eiil"])]
    assert peers["broken"].between(0, 100).all()
    assert set(peers["kind"]) == {"shortcut"}


@pytest.mark.parametrize("name", CHANGES)
def test_every_cue_changes_an_image_and_keeps_its_size(name):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(60, 200, size=(SIZE, SIZE, 3), dtype=np.uint8))
    changed = CHANGES[name](image.copy(), rng)
    assert changed.size == image.size
    assert not np.array_equal(np.asarray(changed), np.asarray(image))


def test_images_are_embedded_once_with_and_without_the_cue(tmp_path, monkeypatch):
    folder = tmp_path / "petscapes" / "cat_solid" / "barn"
    folder.mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (100 + number, 120), (number * 40, 90, 120)).save(folder / f"{number}.jpg")
    seen = []

    def embed(batches, device):
        images = torch.cat(list(batches))
        seen.append(images)
        return images.float().mean((2, 3))

    monkeypatch.setattr(embedding, "embed", embed)
    for _ in range(2):
        embedding.embed_pool("cats_border", tmp_path, tmp_path / "cache")
    assert [images.shape for images in seen] == [(3, 3, SIZE, SIZE)] * 2
    with np.load(tmp_path / "cache" / "cats_border.npz") as stored:
        assert stored["features"].shape == (3, 3)
        assert stored["names"][0] == "petscapes/cat_solid/barn/0.jpg"
    with pytest.raises(FileNotFoundError, match="no images of leaves"):
        embedding.embed_pool("leaves", tmp_path, tmp_path / "cache")


def test_data_without_contexts_raise_no_alarm():
    results = alarms.run([0])
    assert set(results["kind"]) == set(alarms.MADE)
    assert (results["contexts"] == 1).all(), results


def test_pretrained_features_without_contexts_are_drawn_by_style(tmp_path):
    rng = np.random.default_rng(0)
    places = product(("dog", "horse"), ("cartoon", "photo"), range(70))
    names = [f"pacs/{label}/{style}/{number}.jpg" for label, style, number in places]
    np.savez(tmp_path / "pacs.npz", features=rng.normal(size=(280, 12)), names=np.array(names))
    results = alarms.run([0], tmp_path)
    assert results["contexts"].tolist() == [1, 1]
