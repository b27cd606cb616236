"""What a type checker tells a user of the public names: every typo in an option, and what comes
out.
"""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RIGHT = """
from typing_extensions import assert_type

import numpy as np
import torch
from numpy.typing import NDArray

import pfdl
from pfdl.objectives import make_objective
from pfdl.tabular import DWRRegressor, PFDLRegressor, ScreenedRegressor, LeakScreen
from pfdl.vision import TrainingConfig

features, labels = torch.randn(8, 4), torch.zeros(8, dtype=torch.long)
decorrelate = pfdl.PartialDecorrelation(4, sharing="indexed", center="batch")
assert_type(decorrelate(features), torch.Tensor)
irm_pfdl = make_objective("irm+pfdl", 4)
assert_type(irm_pfdl(features, labels, features=features, environments=labels), torch.Tensor)
assert_type(pfdl.infer_contexts(features, labels, method="pooled"), NDArray[np.intp])
table, y = np.zeros((8, 4)), np.zeros(8)
screen = LeakScreen(drop="strong", keep=["age"], target="number").fit(table, y)
assert_type(screen.verdict_, str)
assert_type(screen.transform(table), NDArray[np.float64])
for model in (
    ScreenedRegressor(screen=screen),
    PFDLRegressor(batch_size=None),
    DWRRegressor(solver="lbfgs"),
):
    assert_type(model.predict(table), NDArray[np.float64])
TrainingConfig(objective="pfdl", epochs=3, sampler="groups", precision="bf16")
"""
WRONG = """
import pfdl
from pfdl.objectives import make_objective
from pfdl.tabular import DWRRegressor, PFDLRegressor, LeakScreen
from pfdl.vision import TrainingConfig

pfdl.PartialDecorrelation(4, sharing="strickt")
pfdl.PartialDecorrelation(4, center="bach")
pfdl.PartialDecorrelation(4, kernel="fussed")
LeakScreen(drop="all")
LeakScreen(target="label")
LeakScreen(keep=3.5)
DWRRegressor(solver="adamm")
PFDLRegressor(batch_size="all")
make_objective("pfdl", "4")
TrainingConfig(epochs="three")
TrainingConfig(objektive="pfdl")
TrainingConfig(sampler="grups")
TrainingConfig(precision="fp16")
"""

SETTINGS = f"""
[mypy]
strict = true
mypy_path = {ROOT / "src"}
follow_imports = skip
[mypy-pfdl.*,numpy.typing.*,numpy._typing.*,torch,torch._tensor,torch.nn,torch.nn.modules,torch.nn.modules.module]
follow_imports = normal
[mypy-pandas.*,scipy.*]
follow_imports_for_stubs = true
# Of other packages only what the public names are made of: to read all of PyTorch takes ten times
# as long.
"""


@pytest.mark.usefixtures("nothing_counted")
def test_typos_are_found_and_tensors_come_out(tmp_path):
    api = pytest.importorskip("mypy.api")
    for name, text in {"right.py": RIGHT, "wrong.py": WRONG, "settings.ini": SETTINGS}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = ["--config-file", str(tmp_path / "settings.ini"), "--cache-dir", os.devnull]
    told = api.run([*settings, *map(str, tmp_path.glob("*.py"))])[0]
    assert "right.py" not in told
    found = {int(line) for line in re.findall(r"wrong\.py:(\d+): error:", told)}
    lines = WRONG.splitlines()
    assert [
        line for number, line in enumerate(lines, 1) if "(" in line and number not in found
    ] == []
