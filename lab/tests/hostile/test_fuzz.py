"""Whatever a file holds, a reader of the laboratory returns or says what is wrong."""

import gzip
import hashlib

import pytest
from lab.tests.hostile import targets
from tests.hostile.tampering import attack, targets_in

from pfdl_lab.digits import _read_file


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
