import csv
import io

import pytest

from pfdl.report.tables import Missing, Number, Row, Table, escape_latex

TABLE = Table(
    "Accuracy, 100 %",
    "method",
    ["1:5", "β_V", "words"],
    [
        Row("A & B", (Number(40.123456789, 0.3), Number(-0.5, digits=2), "x, y")),
        Row("in the paper", (Number(41.31, digits=2), Missing("not in the paper"), Missing()), quiet=True),
    ],
    wide=True,
)


def test_latex_by_hand():
    assert TABLE.latex == (
        "\\begin{table}\n\\centering\n\\caption{Accuracy, 100 \\%}\n\\begin{tabular}{lrrl}\n\\toprule\n"
        "method & 1:5 & $\\beta$\\_V & words \\\\\n\\midrule\n"
        "A \\& B & $40.1 \\pm 0.3$ & $-0.50$ & x, y \\\\\n"
        "in the paper & $41.31$ & -- & -- \\\\\n"
        "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )


def test_csv_keeps_decimals_and_gives_errors_a_column():
    lines = list(csv.reader(io.StringIO(TABLE.csv)))
    assert lines[0] == ["method", "1:5", "1:5 (standard error)", "β_V", "words"]
    assert lines[1] == ["A & B", "40.1235", "0.3", "-0.5", "x, y"]
    assert lines[2] == ["in the paper", "41.31", "", "", ""]


def test_every_special_character_of_latex_is_escaped():
    assert escape_latex(r"\{}&%$#_~^") == (r"\textbackslash{}\{\}\&\%\$\#\_\textasciitilde{}\textasciicircum{}")
    assert escape_latex("a ± b − c ⊥ λ²") == r"a $\pm$ b $-$ c $\perp$ $\lambda$\textsuperscript{2}"


def test_an_error_that_one_measurement_cannot_give_is_left_out():
    number = Number(1.0, float("nan"), signed=True)
    assert (number.printed, number.printed_error) == ("+1.0", "")


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="'x' has 1 cells for 2 columns"):
        Table("c", "m", ["a", "b"], [Row("x", ("1",))])


def test_no_cell_of_the_csv_is_a_formula_to_a_spreadsheet():
    hostile = ("=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\tx")
    rows = [Row(text, (text, Number(-1.5))) for text in hostile]
    rows.append(Row("a\r=1", ("b\n=1", Number(1))))  # neither may begin a line of its own
    table = Table("caption", "=corner", ["@words", "number"], rows)
    lines = list(csv.reader(io.StringIO(table.csv, newline="")))
    assert lines[0] == ["'=corner", "'@words", "number"]
    assert lines[-1] == ["a =1", "b\n=1", "1"]
    assert [line[0] for line in lines[1:-1]] == [line[1] for line in lines[1:-1]] == [f"'{text}" for text in hostile]
    assert {line[2] for line in lines[1:-1]} == {"-1.5"}  # a number stays one
