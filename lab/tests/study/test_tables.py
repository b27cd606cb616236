"""The page of a study: paired differences, and tables of several studies."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from pfdl.cli.main import app
from pfdl_lab.report.markdown import render
from pfdl_lab.study import run as study
from pfdl_lab.study.section import describe

VALUES = {
    "erm": (50.0, 52.0, 51.0),
    "balance": (53.0, 54.0, 55.0),
    "erm-batch-16": (40.0, 41.0, 42.0),
    "batch-16": (41.0, 42.0, 43.0),
}


def made_up(values=VALUES):
    return pd.DataFrame(
        [
            {"dataset": "pets", "row": row, "seed": seed, "test": "1:5", "value": value}
            for row, series in values.items()
            for seed, value in enumerate(series)
        ]
    )


def text_of(results, **options):
    return render([describe(results, **options)]).text


def test_the_page_has_paired_differences_to_the_right_baseline():
    text = text_of(made_up())
    assert "| ERM | 3 | 51.0 | compared with | not inferred |" in text
    assert "| balance, inferred contexts | 3 | 54.0 | **+3.00 ± 0.58**, p = 0.035 | not inferred |" in text
    assert "| batches of 16 | 3 | 42.0 | **+1.00 ± 0.00**, p = 0 | not inferred |" in text


def test_a_weighting_that_did_not_act_is_called_so():
    still = made_up().assign(test=study.ESS, value=lambda frame: frame["row"].map({"balance": 0.9995}).fillna(1.0))
    acts = still.assign(value=0.7)
    idle, acting = (text_of(pd.concat([made_up(), sizes])) for sizes in (still, acts))
    assert "| balance, inferred contexts | +3.00 ± 0.58, did not act |" in idle
    assert "| 0.9995, did not act |" in idle
    assert "| balance, inferred contexts | **+3.00 ± 0.58** |" in acting
    assert "| no weighting |" in acting  # ERM


def test_an_overview_has_all_data_sets_of_a_family():
    pets = made_up()
    sheep = pets[(pets["seed"] < 2) | (pets["row"] != "balance")].assign(dataset="pets, fine-tuned")
    table = text_of(pd.concat([pets, sheep])).splitlines()
    assert "| method | pets: 1:5 | pets, fine-tuned: 1:5 |" in table
    assert "| ERM | 51.0 | 51.0 |" in table
    assert "| balance, inferred contexts | **+3.00 ± 0.58** | +2.50 ± 0.50, 2 seeds |" in table
    assert "| batches of 16 | **+1.00 ± 0.00** | **+1.00 ± 0.00** |" in table
    against = text_of(pd.concat([pets, sheep]), against="balance").splitlines()
    assert "| ERM | **−3.00 ± 0.58** | −2.50 ± 0.50, 2 seeds |" in against
    assert "| balance, inferred contexts | 54.0 | 53.5 |" in against


def test_weightings_in_larger_batches_are_compared_with_plain_training_in_those():
    values = {"erm": (50.0, 52.0, 51.0), "erm-batch-256": (40.0, 41.0, 42.0), "dwr-batch-256": (39.0, 40.0, 41.0)}
    text = text_of(made_up(values))
    assert "| DWR, batches of 256 | **−1.00 ± 0.00** |" in text.splitlines()
    assert "Variants of PFDL" not in text


def test_inferred_contexts_are_measured_by_the_gain_of_the_oracle():
    values = {"erm": (50.0, 52.0, 51.0), "sampler": (53.0, 54.0, 55.0), "sampler-known": (54.0, 57.0, 54.0)}
    values |= {"dfr": (51.0, 52.0, 53.0), "dfr-known": (50.0, 51.0, 52.0)}  # here the truth gains nothing
    text = text_of(made_up(values))
    assert "| sampler, inferred contexts | −1.0 ± 1.2, 75 % of +4.0 ± 0.6 |" in text
    assert "| DFR: last layer refitted, inferred contexts | +1.0 ± 0.0, no gain to reach |" in text
    assert "oracle's gain" not in text_of(made_up())
    assert "oracle's gain" not in text_of(made_up(values), against="sampler")


def test_the_chosen_epoch_has_tables_of_its_own():
    last = made_up()
    chosen = last.assign(test=f"1:5{study.CHOSEN}", value=last["value"] + (last["row"] == "balance"))
    judged = last.assign(test=f"{study.VALIDATION}accuracy", value=60.0)
    text = text_of(pd.concat([last, chosen, judged]))
    assert "| method | pets: 1:5, chosen epoch |" in text
    assert "| balance, inferred contexts | **+4.00 ± 0.58** |" in text
    details = text.partition("**Accuracy in percent, pets, chosen epoch**")
    assert "validation" not in details[0]
    assert "| balance, inferred contexts | 3 | 55.0 | **+4.00 ± 0.58**, p = 0.02 | 60.0 |" in details[2]


def test_studies_of_several_machines_become_one(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    made_up().to_csv(first, index=False)
    made_up().assign(value=0.0).replace({"dataset": {"pets": "sheep"}}).to_csv(second, index=False)
    made_up().assign(value=0.0).to_csv(tmp_path / "again.csv", index=False)  # the first has it already
    files = [str(first), str(second), str(tmp_path / "again.csv")]
    result = CliRunner().invoke(app, ["study-table", *files, "--rows", "balance"])
    assert result.exit_code == 0, result.output
    assert "| balance, inferred contexts | **+3.00 ± 0.58** |" in result.output
    assert "| balance, inferred contexts | 3 | 0.0 | +0.00 ± 0.00, p = 1 |" in result.output
    assert "batches of 16" not in result.output
    result = CliRunner().invoke(app, ["study-table", *files, "--data", "sheep", "--against", "balance"])
    assert "| method | sheep: 1:5 |" in result.output
    assert "Compared with balance, inferred contexts." in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "magic"], "the row is 'magic'"),
        (["--rows", "dwr"], "there are no such results"),
        (["--data", "cats"], "there are no such results"),
    ],
)
def test_a_table_of_what_is_not_there_gets_a_sentence(arguments, message, tmp_path):
    made_up().to_csv(tmp_path / "results.csv", index=False)
    result = CliRunner().invoke(app, ["study-table", str(tmp_path / "results.csv"), *arguments])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "dataset,row,seed,test,value\npets,magic,0,1:5,3\n", ""])
def test_a_table_of_another_file_gets_a_sentence(text, tmp_path):
    (tmp_path / "results.csv").write_text(text)
    result = CliRunner().invoke(app, ["study-table", str(tmp_path / "results.csv")])
    assert result.exit_code == 2
    assert "results.csv" in result.output


def test_the_tables_go_below_the_mark_of_a_page(tmp_path):
    made_up().to_csv(tmp_path / "results.csv", index=False)
    (tmp_path / "page.md").write_text("# Mine\n\n<!-- All below is written by `something` -->\n\nyesterday's\n")
    result = CliRunner().invoke(app, ["study-table", str(tmp_path / "results.csv"), "-o", str(tmp_path / "page.md")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Mine\n\n<!-- All below is written by `pfdl")
    assert "yesterday's" not in page
    assert "| ERM | 51.0 |" in page
