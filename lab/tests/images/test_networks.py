"""The networks: features of the packaged one are those it gives by hand, for every image, in
order.
"""

import numpy as np
import pytest
import torch
from tests.vision.tiny_images import TinySource
from torch import nn
from torch.nn import functional as F

from pfdl.data.context_images import store_images
from pfdl.vision.backbones import make_backbone
from pfdl.vision.features import attach
from pfdl.vision.pixels import normalise
from pfdl_lab.images import networks
from pfdl_lab.images.data import ImageData
from pfdl_lab.images.networks import (
    FEATURES,
    FROZEN,
    PRETRAINED,
    ConvNet,
    embed,
    make_network,
)


def test_every_image_is_embedded_and_trained_on_standardised(tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "SIZE", 32)
    monkeypatch.setattr(networks, "BATCH", 50)
    source = TinySource()
    folder = store_images(source, tmp_path / "images", 8)
    networks.write_features(folder)
    features = np.load(folder / FEATURES)
    assert features.shape == (len(source.samples), 1280)
    sample = source.samples[60]
    alone = embed([source.load(sample.path, 8, sample.sha256)[None]], "cpu")[0]
    torch.testing.assert_close(torch.from_numpy(features[60]).float(), alone, atol=2e-3, rtol=2e-3)
    split = ImageData("shapes").split(0, network=FROZEN, images=folder)
    torch.testing.assert_close(split.train.inputs.mean(0), torch.zeros(1280), atol=1e-4, rtol=0)
    assert torch.equal(split.context_features(), split.train.inputs)
    assert make_network(FROZEN, split.train.inputs, 2)(split.train.inputs).shape == (
        len(split.train.labels),
        2,
    )


@pytest.mark.parametrize("name", ["resnet18", "perceptron", "lenet"])
def test_an_embedding_can_be_given_a_width(name):
    inputs = torch.zeros(2, 3, 16, 16)
    shown = inputs if name == "resnet18" else inputs.flatten(1)
    linear = [
        part
        for part in make_network(name, shown, 4, width=7).modules()
        if isinstance(part, torch.nn.Linear)
    ]
    assert (linear[-1].in_features, linear[-1].out_features) == (7, 4)


def test_the_features_are_the_networks_own_and_fine_tuning_starts_from_them():
    images = torch.randint(256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0)).byte()
    large = F.interpolate(images.float(), size=(224, 224), mode="bilinear").round().byte()
    network = make_backbone("lite0", 2, pretrained=True)[1].eval()
    with torch.no_grad():
        expected = network.extract_features((large.float() - 127) / 128).mean((2, 3))
    torch.testing.assert_close(embed([large], "cpu"), expected, rtol=1e-3, atol=1e-4)
    close = F.cosine_similarity(embed([images], "cpu"), expected)
    assert close.min() > 0.999  # smaller images are enlarged
    model = make_network(PRETRAINED, large, 3).eval()
    with attach(model) as tap, torch.no_grad():
        assert model(normalise(large)).shape == (2, 3)
        torch.testing.assert_close(tap.features, expected, rtol=1e-3, atol=1e-4)


def layers_of(model, kind):
    return [layer for layer in model.modules() if isinstance(layer, kind)]


def test_cn_has_the_published_layers():
    model = ConvNet(num_classes=10)
    convolutions = layers_of(model, nn.Conv2d)
    assert [layer.out_channels for layer in convolutions] == [64, 128, 256, 512, 1024]
    for layer in convolutions:
        assert (layer.kernel_size, layer.stride, layer.padding) == ((5, 5), (1, 1), (2, 2))
    for layer in layers_of(model, nn.MaxPool2d):
        assert (layer.kernel_size, layer.stride, layer.padding) == (4, 2, 1)
    widths = [(layer.in_features, layer.out_features) for layer in layers_of(model, nn.Linear)]
    assert widths == [(4096, 512), (512, 512), (512, 10)]


def test_the_features_of_cn_are_bounded_and_signed_as_cnbb_reads_them():
    model = ConvNet(num_classes=10)
    with attach(model) as tap, torch.no_grad():
        model(3 * torch.randn(2, 3, 64, 64))
        assert tap.features.abs().max() <= 1
        assert tap.features.min() < 0


@pytest.mark.parametrize(("name", "number"), [("cn", 0), ("cn-bn", 5)])
def test_cn_is_made_without_or_with_batch_normalisation(name, number):
    network = make_network(name, torch.zeros(1, 3, 32, 32), 2)
    assert len(layers_of(network, nn.BatchNorm2d)) == number


def test_cn_refuses_images_that_it_would_halve_to_nothing():
    with pytest.raises(ValueError, match="image_size is 16; CN halves"):
        ConvNet(2, 16)
