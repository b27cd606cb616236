import pytest
from matplotlib.figure import Figure

from pfdl._internal.figures import save_figure


def draw():
    figure = Figure(figsize=(2, 1))
    axis = figure.subplots()
    axis.plot([1, 3, 2], marker="o", label="a")
    axis.fill_between([0, 1, 2], 1, hatch="/")  # clip paths, markers and hatches have names in an SVG file
    axis.legend()
    return figure


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_figure_is_the_same_file(kind, tmp_path):
    for name in ("first", "second"):
        save_figure(draw(), tmp_path / f"{name}.{kind}", dpi=50)
    content = (tmp_path / f"first.{kind}").read_bytes()
    assert content == (tmp_path / f"second.{kind}").read_bytes()
    assert content.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    assert b"<dc:date>" not in content
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"first.{kind}", f"second.{kind}"]
