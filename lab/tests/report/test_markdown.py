"""The same blocks as Markdown, with plots as pictures."""

from pfdl_lab.report import blocks
from pfdl_lab.report.markdown import print_section, render

TABLE = blocks.Table(
    "Accuracy",
    "method",
    ["1:5", "5:1"],
    [
        blocks.TableLine(
            "A | B",
            (
                blocks.Number(40.12, 0.34),
                blocks.Number(-1.0, 0.2, 2, signed=True, strong=True, remark="2 seeds"),
            ),
        ),
        blocks.TableLine(
            "in the paper", (blocks.Missing("not in the paper"), "37 to 38"), quiet=True
        ),
    ],
    note="A remark.",
)
PLOT = blocks.Plot("Accuracy, with errors", "It rises.", lambda axes: axes.plot([0, 1], [1.0, 2.0]))


def test_a_table_by_hand():
    assert render([blocks.Section("Title", [TABLE])]).text == (
        "# Title\n\n**Accuracy**\n\n"
        "| method | 1:5 | 5:1 |\n| --- | --- | --- |\n"
        "| A \\| B | 40.1 ± 0.3 | **−1.00 ± 0.20**, 2 seeds |\n"
        "| *in the paper* | not in the paper | 37 to 38 |\n\n± standard error.\n\nA remark.\n"
    )


def test_every_block_has_a_form():
    parts = [
        blocks.Text("Words."),
        blocks.Text("Careful.", "warning"),
        blocks.Heading("Part"),
        blocks.Listing("Settings", "{}"),
    ]
    shown = render([blocks.Section("Title", parts)])
    for words in ("\n\nWords.", "\n\n> Careful.", "\n\n## Part", "```\n{}\n```"):
        assert words in shown.text


def test_plots_become_pictures_with_names_of_their_own(tmp_path):
    shown = render(
        [blocks.Section("One", [PLOT]), blocks.Section("Two", [PLOT])],
        prefix="page-",
    )
    assert list(shown.pictures) == ["page-accuracy.svg", "page-accuracy-2.svg"]
    assert (
        "![Accuracy, with errors](page-accuracy-2.svg)\n\n*Accuracy, with errors.* It rises."
        in shown.text
    )
    assert shown.pictures["page-accuracy.svg"] == PLOT.svg()
    written = shown.write(tmp_path / "page.md")
    assert {path.name for path in written} == {path.name for path in tmp_path.iterdir()}


def test_a_section_is_printed_without_its_pictures(capsys):
    print_section(blocks.Section("Title", [blocks.Heading("Part"), TABLE, PLOT]))
    printed = capsys.readouterr().out
    assert printed.startswith("# Title\n\n## Part\n\n**Accuracy**\n\n| method | 1:5 | 5:1 |")
    assert "It rises." not in printed
