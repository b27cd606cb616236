"""The laboratory against kill -9 at any instant, after which a rerun ends with the same files, and
against any file.
"""

import gzip
import hashlib
import os

import pytest
from lab.tests.hostile import targets
from tests.hostile.killing_driver import check_reruns, main
from tests.hostile.tampering import attack, targets_in
from tests.vision.tiny_images import TinySource

from pfdl_lab.digits import _read_file
from pfdl_lab.images.data import ImageData
from pfdl_lab.images.run import ImagesConfig, run


def nico(output, data):
    ImageData.open = lambda self, *_: TinySource()  # in a process of its own
    config = ImagesConfig(
        rows=("pfdl",), backbone="mlp", image_size=8, epochs=2, batch_size=16, seeds=2
    )
    run(config, [ImageData("shapes")], output)


def kill_nico():
    main(nico)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the experiment is forked")
def test_killed_in_its_writes_and_at_random_a_rerun_ends_with_the_same_files(tmp_path):
    check_reruns(kill_nico, {"nico": {"results.csv", "config.json"}}, tmp_path)


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize("target", targets_in(targets))
def test_no_reader_crashes_hangs_or_raises_anything_but_a_sentence(target, tmp_path):
    attack(target, tmp_path)


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pfdl_lab.digits.MAX_BYTES", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(2000)))
    unpacked = hashlib.md5(bytes(1001)).hexdigest()  # no further than that
    with pytest.raises(ValueError, match=f"is not MNIST's file of that name .md5 {unpacked}"):
        _read_file(tmp_path / "bomb.gz", hashlib.md5(bytes(2000)).hexdigest())
