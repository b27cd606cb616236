import unicodedata

from hypothesis import given, strategies as st

from pfdl._internal.text import printable, printable_lines, spreadsheet_cell

HOSTILE = (
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x9b31m",
    "a\rb",
    "a\nb",
    "\u202egnp.exe",
    "\udcff",
    "\x00",
    "\u2028",
)


def test_no_name_can_steer_a_terminal():
    for name in HOSTILE:
        shown = printable(name)
        assert shown.isprintable()
        assert shown != name
        shown.encode()
    assert printable("\x1b[2J") == r"\x1b[2J"
    assert printable("Kätzchen in 雪, 5 % — [bold]") == "Kätzchen in 雪, 5 % — [bold]"


@given(st.text())
def test_what_is_shown_is_printable_and_lines_stay_lines(text):
    assert all(not unicodedata.category(one).startswith("C") for one in printable(text))
    lines = printable_lines(text)
    assert lines.count("\n") == text.count("\n")
    assert lines.replace("\n", "").isprintable()


@given(st.text(st.sampled_from("a=+-@;|,\t\n\r\" '"), max_size=8))
def test_no_cell_is_a_formula_whatever_separates_cells(text):
    cell = spreadsheet_cell(text)
    for separator in ";\t|\n":
        for part in cell.split(separator):
            assert not part.lstrip(' "').startswith(("=", "+", "-", "@"))
    assert "\r" not in cell
    assert cell.replace("'", "") == text.replace("\r", " ").replace("'", "")
