"""Contexts that nobody named: train, diagnose and refit find the same ones."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from pfdl.contexts import find_contexts
from pfdl.contexts.assigning import assign_contexts
from pfdl.data import make_split, make_test_set
from pfdl.data.features import FeatureImages, FeatureTable
from pfdl.data.images import hash_bytes
from pfdl.data.sources import Sample
from pfdl.vision import embedding, load_model, refit, train
from pfdl.vision.config import TrainingConfig
from pfdl.vision.diagnosis import diagnose_images

NAMES = ("cat", "dog")


def draw_features(count, agreement, seed):
    """Six features move with the context, six a little with the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    contexts = np.where(rng.random(count) < agreement, labels, 1 - labels)
    features = rng.normal(size=(count, 12)).astype(np.float32)
    features[:, :6] += 3.0 * contexts[:, None]
    features[:, 6:] += 0.7 * labels[:, None]
    return features, labels, contexts


class Pictures:
    """Images of one colour, in sets of their own."""

    description = {"kind": "tests"}  # noqa: RUF012, as the protocol has it

    def __init__(self, parts):
        self.samples, rows = [], []
        for split, (features, labels, _) in parts.items():
            for number, label in enumerate(labels.tolist()):
                path = f"{split}/{number:04d}"
                digest = hash_bytes(path.encode())
                self.samples.append(Sample(path, NAMES[label], "", digest, digest, split))
                rows.append(features[number])
        self.samples = tuple(self.samples)
        hashes = tuple(sample.sha256 for sample in self.samples)
        paths = tuple(sample.path for sample in self.samples)
        self.table = FeatureTable(paths, np.stack(rows), hashes, "of-tests", "f" * 64)

    def load(self, path, size, sha256):
        return torch.full((3, size, size), len(path), dtype=torch.uint8)


@pytest.fixture(scope="module")
def data():
    parts = {
        "train": draw_features(900, 0.9, 0),
        "validation": draw_features(300, 0.9, 1),
        "test": draw_features(500, 0.5, 2),
    }
    pictures = Pictures(parts)
    source = FeatureImages(pictures, pictures.table)
    return parts, source, make_split(source)


PLAIN = TrainingConfig("readout", epochs=8, batch_size=32, augment="none", learning_rate=0.05)


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    _, source, manifest = data
    folder = tmp_path_factory.mktemp("runs") / "plain"
    train(PLAIN, source, manifest, folder, device="cpu", tensorboard=False)
    return load_model(folder)


def test_train_diagnose_and_refit_find_the_same_contexts(data, plain, tmp_path):
    parts, source, manifest = data
    config = dataclasses.replace(PLAIN, contexts="inferred", sampler="groups", epochs=1)
    train(config, source, manifest, tmp_path / "run", device="cpu", tensorboard=False)
    trained_on = pd.read_csv(tmp_path / "run" / "contexts.csv").set_index("path")["context"]
    refit(plain, source, manifest, tmp_path / "refit")
    refitted_on = pd.read_csv(tmp_path / "refit" / "contexts.csv").set_index("path")["context"]
    assert (refitted_on[trained_on.index] == trained_on).all()
    true = parts["train"][2]
    agreement = np.mean(trained_on.to_numpy() == true)
    assert max(agreement, 1 - agreement) > 0.95
    found = diagnose_images(plain, source, manifest)
    assert found.contexts_are == "inferred"
    assert found.answer == "yes"
    assert found.found.shift is None
    number = np.array([int(context.removeprefix("context ")) for context in found.contexts])
    swapped = agreement < 0.5
    assert np.mean(number == (parts["test"][2] ^ swapped)) > 0.95
    usual = trained_on.groupby([manifest_class(manifest, path) for path in trained_on.index])
    expected = {name: f"context {of.mode()[0]}" for name, of in usual}
    assert found.usual_contexts == expected


def manifest_class(manifest, path):
    return next(row.class_name for row in manifest.rows if row.path == path)


def test_other_images_are_judged_by_training_features_that_were_kept(
    data, plain, tmp_path, monkeypatch
):
    _, source, manifest = data
    other = Pictures({"test": draw_features(400, 0.1, 7)})
    renamed = [sample._replace(sha256=hash_bytes(b"x" + sample.path.encode()), split="")
               for sample in other.samples]  # fmt: skip
    other.samples = tuple(renamed)
    hashes = tuple(sample.sha256 for sample in renamed)
    features = FeatureImages(other, dataclasses.replace(other.table, sha256=hashes))
    tested = make_test_set(features, manifest)
    monkeypatch.setenv(embedding.CACHE, str(tmp_path))
    blind = diagnose_images(plain, features, tested, trained_on=manifest)
    assert blind.answer == "cannot tell"
    assert "which contexts went with which class in training" in blind.verdict()[0]
    folder = tmp_path / "features" / ("f" * 32)
    folder.mkdir(parents=True)
    embedding.write_features(folder / "kept.npz", source.pictures.table)
    found = diagnose_images(plain, features, tested, trained_on=manifest)
    assert (found.contexts_are, found.answer) == ("inferred", "yes")


def test_contexts_are_recognised_in_samples_that_are_mixed_otherwise():
    features, labels, _ = draw_features(800, 0.9, 3)
    inferred = find_contexts(features, labels).contexts
    other, their_labels, true = draw_features(500, 0.1, 4)
    found = assign_contexts(features, labels, inferred, other, their_labels)
    assert found.is_sound
    agreement = np.mean(found.contexts == true)
    assert max(agreement, 1 - agreement) > 0.95
    noise = np.random.default_rng(0).integers(2, size=800)
    assert not assign_contexts(features, labels, noise, other, their_labels).is_sound
    one = assign_contexts(features, labels, np.zeros(800, dtype=int), other, their_labels)
    assert not one.contexts.any()


def test_the_test_images_of_a_run_alone_are_enough(data, plain, tmp_path, monkeypatch):
    """Features of the training images need not be given; then nobody knows what was usual."""
    _, source, manifest = data
    monkeypatch.setenv(embedding.CACHE, str(tmp_path))
    alone = Pictures({"test": draw_features(500, 0.5, 2)})
    features = FeatureImages(alone, alone.table)
    found = diagnose_images(plain, features, manifest)
    assert len(found.rows) == 500
    assert found.answer == "cannot tell"
    assert found.found.gap is not None  # from what the run logged
    with_all = FeatureImages(alone, source.pictures.table)
    assert diagnose_images(plain, with_all, manifest).answer == "yes"
