import copy

import pytest
import torch
from torch import nn

import pfdl
import pfdl.vision.backbones
from pfdl.vision.features import embed
from pfdl.vision.pixels import normalise

torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")


@pytest.mark.parametrize(
    ("name", "layer", "width", "options"),
    [
        ("resnet18", "fc", 512, {}),
        ("mobilenet_v3_small", "classifier.3", 1024, {}),
        ("vit_b_16", "heads.head", 768, {"image_size": 64}),
    ],
)
def test_finds_the_features_of_torchvision_models(name, layer, width, options):
    model = getattr(torchvision.models, name)(weights=None, **options).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        untouched = model(images)
    tap = pfdl.attach(model)
    with torch.no_grad():
        logits = model(images)
    assert (tap.layer_name, tap.num_features) == (layer, width)
    torch.testing.assert_close(model.get_submodule(layer)(tap.features), untouched)
    assert torch.equal(logits, untouched)
    tap.detach()
    assert not model.get_submodule(layer)._forward_pre_hooks


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def test_gradient_of_the_penalty_reaches_the_backbone_and_not_the_head():
    model = small_model()
    with pfdl.attach(model) as tap:
        model(torch.randn(8, 6))
        pfdl.PartialDecorrelation(tap.num_features, hidden=4)(tap.features).backward()
    assert model[0].weight.grad.abs().sum() > 0
    assert model[2].weight.grad is None
    with pytest.raises(RuntimeError, match="no features yet: layer '2'"):
        _ = tap.features  # the context manager took the hook off


def test_timm_style_classifier_is_preferred_to_the_last_linear_layer():
    class Timm(nn.Sequential):
        def get_classifier(self):
            return self[1]

    model = Timm(nn.Linear(5, 4), nn.Linear(4, 3), nn.Linear(3, 2))
    tap = pfdl.attach(model)
    model(torch.ones(2, 5))
    assert tap.layer_name == "1"
    assert torch.equal(tap.features, model[0](torch.ones(2, 5)))


def test_layer_by_name_and_by_module():
    model = small_model()
    assert pfdl.attach(model, "0").num_features == 6
    assert pfdl.attach(model, model[0]).layer_name == "0"
    tap = pfdl.attach(model, "1")
    assert tap.num_features is None  # a ReLU does not tell its width
    model(torch.ones(2, 6))
    assert tap.features.shape == (2, 5)


def test_a_watched_model_can_be_copied_averaged_and_saved(tmp_path):
    model = small_model()
    tap = pfdl.attach(model)
    inputs = torch.randn(4, 6)
    model(inputs)  # its features now hang on a graph, which cannot be copied
    twin, twins_tap = copy.deepcopy((model, tap))
    twin(2 * inputs)
    torch.testing.assert_close(twins_tap.features, torch.relu(twin[0](2 * inputs)))
    torch.testing.assert_close(tap.features, torch.relu(model[0](inputs)))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    torch.testing.assert_close(averaged(inputs), model(inputs))
    torch.save(model, tmp_path / "model.pth")
    torch.testing.assert_close(
        torch.load(tmp_path / "model.pth", weights_only=False)(inputs), model(inputs)
    )
    twins_tap.detach()
    assert not twin[2]._forward_pre_hooks
    assert model[2]._forward_pre_hooks


def test_maps_of_one_pixel_are_flattened():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 2, 1), nn.Flatten())
    tap = pfdl.attach(model, "1")
    assert tap.num_features == 3
    images = torch.randn(4, 3, 5, 5)
    model(images)
    torch.testing.assert_close(tap.features, images.mean((2, 3)))


def test_a_classifier_of_timm_that_is_a_convolution():
    pytest.importorskip("timm", reason="timm is not installed")
    model = pfdl.vision.backbones.make_backbone("timm/resnetv2_50x1_bit", 3, image_size=32).eval()
    tap = pfdl.attach(model)
    with torch.no_grad():
        logits = model(torch.randn(2, 3, 32, 32))
        maps = tap.features[:, :, None, None]
        torch.testing.assert_close(model.get_submodule(tap.layer_name)(maps).flatten(1), logits)
    assert tap.features.shape == (2, tap.num_features)


def test_embed_gives_the_features_of_many_images_and_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    model[2].eval()  # as users freeze a batch norm
    images = torch.randint(256, (5, 3, 2, 2)).byte()
    features = embed(model, images, batch_size=2)
    torch.testing.assert_close(features, model[1](normalise(images).flatten(1)))
    assert [part.training for part in model.modules()] == [True, True, True, False, True]
    assert not model[3]._forward_pre_hooks


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="Sequential has no linear layer"):
        pfdl.attach(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match="no layer 'fc'; its linear layers are: 0, 2"):
        pfdl.attach(small_model(), "fc")
    with pytest.raises(ValueError, match="the Linear given as layer is not a part"):
        pfdl.attach(small_model(), nn.Linear(2, 2))
    convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    tap = pfdl.attach(convolution, "1")
    convolution(torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match=r"shape \(2, 4, 6, 6\)"):
        _ = tap.features
