import sys
import urllib.error

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

import pfdl
from pfdl.vision.backbones import OURS, list_backbones, make_backbone


@pytest.mark.parametrize(
    "name", ["mlp", "small", "resnet18", "mobilenet_v3_small", "timm/resnet10t"]
)
def test_every_family_gives_logits_and_its_features_are_reachable(name):
    model = make_backbone(name, num_classes=5, image_size=64).eval()
    with pfdl.attach(model) as tap, torch.no_grad():
        logits = model(torch.randn(2, 3, 64, 64))
        assert logits.shape == (2, 5)
        assert tap.features.shape == (2, tap.num_features)


@pytest.mark.parametrize("name", ["resnet18", "timm/resnet18"])
def test_the_small_stem_keeps_the_resolution(name):
    model = make_backbone(name, num_classes=2, small_stem=True)
    seen = []
    model.layer1.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0].shape[-2:]))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 2)
    assert seen == [(32, 32)]


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
    with pytest.raises(ValueError, match="no pretrained weights of 'mlp'"):
        make_backbone("mlp", 2, pretrained=True)
    with pytest.raises(ValueError, match="num_classes is 1"):
        make_backbone("mlp", 1)


def test_without_the_libraries_our_own_networks_remain(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert set(list_backbones()) == {"lite0", "mlp", "readout", "small"}
    for name, library in {"timm/resnet18": "timm", "resnet18": "torchvision"}.items():
        with pytest.raises(ImportError, match=rf"model of {library}.*install pfdl\[images\]"):
            make_backbone(name, 2)


def offline(*args, **kwargs):
    raise urllib.error.URLError("Temporary failure in name resolution")


@pytest.mark.parametrize("name", ["resnet18", "timm/resnet10t"])
def test_pretrained_weights_without_a_network_are_a_sentence(name, monkeypatch):
    monkeypatch.setattr(models, "get_model", offline)
    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(
        ConnectionError, match=f"weights of '{name}' could not be downloaded .*weights=FILE"
    ):
        make_backbone(name, 2, pretrained=True)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_local_weights_are_loaded_with_a_new_last_layer(suffix, tmp_path):
    stock = make_backbone("resnet18", 7)
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": stock.state_dict()}, path)
    else:
        save_file(stock.state_dict(), path)
    model = make_backbone("resnet18", 3, weights=path)
    assert torch.equal(model.layer4[1].conv2.weight, stock.layer4[1].conv2.weight)
    assert model.fc.out_features == 3
    same = make_backbone("resnet18", 7, weights=path)
    assert torch.equal(same.fc.weight, stock.fc.weight)


class Evil:
    def __reduce__(self):
        return print, ("code from a file of weights ran",)


def state(**changes):
    return {**make_backbone("mlp", 2, image_size=8).state_dict(), **changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Evil(), "is not a file of weights"),
        ([1, 2], "it must map names to tensors"),
        ({"a": 1}, "it must map names to tensors"),
        ({"a": torch.ones(1)}, "'1.weight' is None; it must be a tensor"),
        (state(**{"1.bias": torch.ones(9)}), r"'1.bias' has shape \(9,\); it must be \(256,\)"),
        (
            state(**{"1.bias": torch.full((256,), float("nan"))}),
            "'1.bias' has a NaN or an infinity",
        ),
        (state(**{"1.bias": torch.ones(256, dtype=torch.int8)}), "'1.bias' has dtype torch.int8"),
    ],
)
def test_a_file_of_something_else_is_a_sentence(content, message, tmp_path, capsys):
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=message):
        make_backbone("mlp", 2, image_size=8, weights=tmp_path / "weights.pth")
    assert "ran" not in capsys.readouterr().out


def test_missing_or_doubled_weights_are_sentences(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file of weights"):
        make_backbone("mlp", 2, weights=tmp_path / "nowhere.pth")
    with pytest.raises(ValueError, match="choose one of them"):
        make_backbone("resnet18", 2, pretrained=True, weights=tmp_path / "w.pth")
    (tmp_path / "weights.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="is not a file of weights"):
        make_backbone("mlp", 2, weights=tmp_path / "weights.safetensors")


def test_a_network_of_ones_own_has_a_name(monkeypatch):
    monkeypatch.setattr("pfdl.vision.backbones.OURS", dict(OURS))
    pfdl.register_backbone(
        "own", lambda classes, size: nn.Sequential(nn.Flatten(), nn.Linear(3 * size**2, classes))
    )
    assert list_backbones("own*") == ["own"]
    assert make_backbone("own", 4, image_size=5)(torch.zeros(2, 3, 5, 5)).shape == (2, 4)
    for name, problem in {
        "own": "already",
        "resnet18": "already",
        "timm/x": "letters, digits",
    }.items():
        with pytest.raises(ValueError, match=problem):
            pfdl.register_backbone(name, nn.Linear)
    with pytest.raises(TypeError, match="the factory of 'other' is a str"):
        pfdl.register_backbone("other", "resnet18")
