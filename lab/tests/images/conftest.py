"""Tiny data for trainings that take no time: coloured digits, and pictures of 8×8 pixels."""

import pytest
from tests.vision.tiny_images import TinySource

from pfdl_lab.images import data as image_data, networks
from pfdl_lab.images.config import ImagesConfig
from pfdl_lab.images.data import ImageData
from pfdl_lab.images.run import run_task


@pytest.fixture
def digits(monkeypatch):
    """Few digits for a small perceptron."""
    monkeypatch.setattr(image_data, "COLORED_DIGITS", 200)
    monkeypatch.setattr(networks, "HIDDEN_WIDTH", 16)
    return ImageData("colored-mnist")


@pytest.fixture
def tiny(monkeypatch):
    """Tiny images in the place of the shapes."""
    monkeypatch.setattr(ImageData, "open", lambda self, *_: TinySource())
    return ImageData("shapes")


@pytest.fixture
def task(tmp_path):
    """Train one row on digits; return the values by epoch and test."""

    def train(row, data, seed=0, **settings):
        how = ImagesConfig((row,), **{"epochs": 2, **settings}).training
        places = {data.name: data}
        lines = run_task(
            data.name, row, seed, how, datasets=places, folder=tmp_path, contexts={}, device="cpu"
        )
        return {(line["epoch"], line["test"]): line["value"] for line in lines}

    return train
