import sys

import pytest
import torch
from torch import nn
from torchvision import models

import pfdl
from pfdl.vision.backbones import ConvNet, list_backbones, make_backbone


@pytest.mark.parametrize("name", ["cn", "cn-bn", "mlp", "small", "resnet18", "mobilenet_v3_small", "timm/resnet10t"])
def test_every_family_gives_logits_and_its_features_are_reachable(name):
    model = make_backbone(name, num_classes=5, image_size=64).eval()
    with pfdl.attach(model) as tap, torch.no_grad():
        logits = model(torch.randn(2, 3, 64, 64))
        assert logits.shape == (2, 5)
        assert tap.features.shape == (2, tap.num_features)


def test_cn_is_the_published_network():
    model = ConvNet(num_classes=10)
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size, c.stride, c.padding) for c in convolutions] == [
        (width, (5, 5), (1, 1), (2, 2)) for width in (64, 128, 256, 512, 1024)
    ]
    assert all(
        (pool.kernel_size, pool.stride, pool.padding) == (4, 2, 1)
        for pool in model.modules()
        if isinstance(pool, nn.MaxPool2d)
    )
    assert [(f.in_features, f.out_features) for f in model.modules() if isinstance(f, nn.Linear)] == [
        (4096, 512),
        (512, 512),
        (512, 10),
    ]
    with pfdl.attach(model) as tap, torch.no_grad():
        model(3 * torch.randn(2, 3, 64, 64))
        assert tap.features.abs().max() <= 1
        assert tap.features.min() < 0  # signed, as CNBB reads them


def test_cn_bn_normalises_each_convolution():
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in make_backbone("cn-bn", 2).modules()) == 5
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in make_backbone("cn", 2).modules())


@pytest.mark.parametrize("name", ["resnet18", "timm/resnet18"])
def test_the_small_stem_keeps_the_resolution(name):
    model = make_backbone(name, num_classes=2, small_stem=True)
    seen = []
    model.layer1.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0].shape[-2:]))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 2)
    assert seen == [(32, 32)]


@pytest.mark.parametrize("name", ["cn", "vgg11", "timm/resnet10t"])
def test_the_small_stem_says_where_it_does_not_apply(name):
    with pytest.raises(ValueError, match="small-image stem"):
        make_backbone(name, num_classes=2, small_stem=True)


def test_weights_fit_the_bare_torchvision_model():
    model = make_backbone("resnet18", num_classes=7)
    loaded = models.resnet18(num_classes=7).load_state_dict(model.state_dict())
    assert not loaded.missing_keys
    assert not loaded.unexpected_keys


def test_pretrained_weights_come_from_the_library_with_a_new_last_layer(monkeypatch):
    stock = models.resnet18()

    def stand_in(name, weights, **rest):
        assert (name, weights, rest) == ("resnet18", "DEFAULT", {})
        return stock

    monkeypatch.setattr(models, "get_model", stand_in)
    model = make_backbone("resnet18", num_classes=3, pretrained=True)
    assert model is stock
    assert model.fc.out_features == 3


def test_the_inceptions_give_plain_logits():
    model = make_backbone("googlenet", num_classes=2).train()
    assert model(torch.randn(2, 3, 64, 64)).shape == (2, 2)


def test_transformers_of_timm_are_told_the_size_of_the_images():
    model = make_backbone("timm/vit_tiny_patch16_224", num_classes=2, image_size=32).eval()
    with torch.no_grad():
        assert model(torch.randn(1, 3, 32, 32)).shape == (1, 2)


def test_a_wildcard_lists_all_sources():
    assert {"resnet18", "resnet50"} <= set(list_backbones("resnet*"))
    assert "timm/resnet18" in list_backbones("*resnet18")
    assert list_backbones("nothing-is-called-so") == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet19", "'resnet18'"),
        ("vit_tiny_patch16_224", "'timm/vit_tiny_patch16_224'"),
        ("timm/nonsense_net", "list"),
    ],
)
def test_an_unknown_name_is_answered_with_a_near_one(name, hint):
    with pytest.raises(ValueError, match="is unknown") as caught:
        make_backbone(name, num_classes=2)
    assert hint in str(caught.value)


def test_wrong_arguments_are_sentences():
    with pytest.raises(ValueError, match="no pretrained weights of 'cn'"):
        make_backbone("cn", 2, pretrained=True)
    with pytest.raises(ValueError, match="at least 32"):
        make_backbone("cn", 2, image_size=16)
    with pytest.raises(ValueError, match="num_classes is 1"):
        make_backbone("cn", 1)


def test_without_the_libraries_our_own_networks_remain(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert list_backbones() == ["cn", "cn-bn", "mlp", "small"]
    with pytest.raises(ImportError, match="install timm"):
        make_backbone("timm/resnet18", 2)
    with pytest.raises(ImportError, match="install torchvision"):
        make_backbone("resnet18", 2)
