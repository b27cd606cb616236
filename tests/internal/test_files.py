"""Nothing but regular files of bounded size is read, and nothing but JSON is written as JSON."""

import errno
import json
import math
import os
from pathlib import Path

import pandas as pd
import pytest

from pfdl._internal import files
from pfdl._internal.files import read_bytes_file, read_frame, read_json, write_json
from tests.hostile.tampering import make_special

READERS = {"bytes": read_bytes_file, "json": read_json, "table": read_frame}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["folder", "pipe", "null", "zero", "link to a pipe"])
def test_special_files_are_refused_at_once(reader, kind, tmp_path):
    special = tmp_path / "file"
    make_special(
        tmp_path / "pipe" if kind == "link to a pipe" else special, kind.rpartition(" ")[2]
    )
    if kind == "link to a pipe":
        special.symlink_to(tmp_path / "pipe")
    with pytest.raises(ValueError, match=rf"^{special} is not a regular file\.$"):
        READERS[reader](special)


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("1")
    status = (tmp_path / "file").stat()
    (tmp_path / "file").unlink()
    os.mkfifo(tmp_path / "file")
    # As it was when it was looked at
    monkeypatch.setattr(type(tmp_path), "stat", lambda self: status)
    with pytest.raises(ValueError, match=r"file is not a regular file\.$"):
        read_bytes_file(tmp_path / "file", 10)


@pytest.mark.parametrize("reader", READERS)
def test_large_files_are_refused_unread(reader, tmp_path, monkeypatch):
    with (tmp_path / "file").open("wb") as stream:
        stream.truncate(files.MAX_TEXT + 1)  # a hole, which takes no room on the disk
    with pytest.raises(
        ValueError, match=r"file has 67108865 bytes; more than 67108864 are not read\."
    ):
        READERS[reader](tmp_path / "file")


def test_files_that_claim_to_be_empty_are_bounded_too():
    with pytest.raises(ValueError, match="more than the 0 bytes that its size says"):
        read_bytes_file(files.Path("/proc/self/status"), 3)


def test_what_is_missing_is_the_systems_own_error(tmp_path):
    for read in READERS.values():
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "absent")


def test_tables(tmp_path):
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    pd.testing.assert_frame_equal(read_frame(tmp_path / "file"), pd.DataFrame({"a": [1], "b": [2]}))
    pd.testing.assert_frame_equal(
        read_frame(tmp_path / "file", usecols=["b"]), pd.DataFrame({"b": [2]})
    )
    (tmp_path / "file").write_bytes(b"," * 20_000 + b"\n1")
    with pytest.raises(ValueError, match="has 20001 columns; more than 10000 are not read"):
        read_frame(tmp_path / "file")


def test_json_never_holds_words_for_numbers(tmp_path):
    value = {
        "a": [1.5, math.nan, (math.inf, True)],
        "b": {"c": -math.inf, "d": None, "e": "NaN", "ü": 3},
    }
    write_json(tmp_path / "file", value)

    def refuse(constant):
        pytest.fail(f"{constant} is no JSON")

    found = json.loads((tmp_path / "file").read_text(), parse_constant=refuse)
    assert found == {
        "a": [1.5, None, [None, True]],
        "b": {"c": None, "d": None, "e": "NaN", "ü": 3},
    }
    assert read_json(tmp_path / "file") == found


def test_a_table_with_two_columns_of_one_name_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    for text in ('a;"y";c;y\n1;2;3;4\n', "\na,y,y\n1,2,3\n", "a,y,y\r1,2,3\r"):
        path.write_text(text)
        with pytest.raises(ValueError, match="two columns are called 'y'; rename one"):
            read_frame(path)
    path.write_text("a,,\n1,2,3\n")  # as spreadsheets write empty columns
    assert read_frame(path).shape == (1, 3)


def test_a_separator_at_the_end_of_each_line_adds_no_column(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2,\n3,4,\n")
    assert read_frame(tmp_path / "table.csv").to_dict("list") == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.parametrize("lines", ["a,b\n1,2,3,4\n", "a,b\n0,2,9\n1,3,9\n", "a;b\n1,5;2;7\n"])
def test_a_table_with_more_cells_than_names_is_refused_and_not_read_shifted(lines, tmp_path):
    (tmp_path / "table.csv").write_text(lines)
    with pytest.raises(ValueError, match="more cells than its header has names"):
        read_frame(tmp_path / "table.csv")


def test_a_table_of_empty_lines_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\r\n \n")
    with pytest.raises(ValueError, match="is not a table in UTF-8 with a header"):
        read_frame(tmp_path / "a.csv")


def test_on_a_disk_that_is_read_only_the_sentence_names_the_file_that_was_to_be_written(
    tmp_path, monkeypatch
):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "a temporary file")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match=r"m\.csv cannot be written \(Read-only file system\)"):
        write_json(tmp_path / "m.csv", {})
