"""kill -9 at any instant of an experiment: the rerun ends with the same files, byte for byte."""

import os

import pytest
from tests.hostile.killing_driver import check_reruns, main
from tests.vision.tiny_images import TinySource

from pfdl_lab.images.data import ImageData
from pfdl_lab.images.run import ImagesConfig, run


def nico(output, data):
    ImageData.open = lambda self, *_: TinySource()  # in a process of its own
    config = ImagesConfig(rows=("pfdl",), backbone="mlp", image_size=8, epochs=2, batch_size=16, seeds=2)
    run(config, [ImageData("shapes")], output)


def kill_nico():
    main(nico)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the experiment is forked")
def test_killed_in_its_writes_and_at_random_a_rerun_ends_with_the_same_files(tmp_path):
    check_reruns(kill_nico, {"nico": {"results.csv", "config.json"}}, tmp_path)
