import io

from rich.console import Console

from pfdl._internal import progress as _progress
from pfdl._internal.progress import progress_bar
from pfdl.data import open_images
from tests.data.image_files import make_folder


def drawn(tmp_path, **options):
    """What is drawn while a folder is read."""
    stream = io.StringIO()
    make_folder(tmp_path, {"cat/snow": 3, "dog/grass": 4})
    with progress_bar("checking images", Console(file=stream, **options)) as show:
        assert len(open_images(tmp_path).check(show).samples) == 7
    return stream.getvalue()


def test_slow_work_on_a_terminal_shows_how_much_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(_progress, "AFTER", 0.0)
    text = drawn(tmp_path, force_terminal=True)
    assert "checking images" in text
    assert "7/7" in text


def test_quick_work_and_pipes_stay_clean(tmp_path, monkeypatch):
    assert "checking" not in drawn(tmp_path, force_terminal=True)
    monkeypatch.setattr(_progress, "AFTER", 0.0)
    assert drawn(tmp_path) == ""
