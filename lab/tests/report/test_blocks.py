from pfdl_lab.report.blocks import Missing, Number, Table, TableLine


def test_an_error_that_one_measurement_cannot_give_is_left_out():
    number = Number(1.0, float("nan"), signed=True)
    assert (str(number), number.printed_error) == ("+1.0", "")
    assert str(Number(-0.5, 0.25, digits=2)) == "−0.50 ± 0.25"


def test_a_table_says_what_its_errors_are_where_it_has_some():
    row = TableLine("x", (Number(1.0, 0.1), Missing()))
    assert Table("c", "m", ["a", "b"], [row], "So it is.").notes == ["± standard error.", "So it is."]
    deviation = Table("c", "m", ["a", "b"], [row], error_name="standard deviation over seeds (ddof 1)")
    assert deviation.notes == ["± standard deviation over seeds (ddof 1)."]
    assert Table("c", "m", ["a"], [TableLine("x", (Number(1.0, float("nan")),))]).notes == []
