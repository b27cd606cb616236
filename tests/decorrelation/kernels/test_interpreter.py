"""The Triton kernels without a GPU: the tests of this folder once more, in Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.decorrelation.kernels.conftest import CANNOT_LOOP

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed"
    ),
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") == "1", reason="already in the interpreter"
    ),
]


IMPORTED_UNCOUNTED = """
import gc, sys
counter = sys.gettrace()
sys.settrace(None)  # coverage makes what is slow half as slow again
gc.disable()  # and so does the search for garbage
import pytest, torch._dynamo
gc.freeze()
sys.settrace(counter)
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_kernels_in_the_interpreter():
    """In a process of its own: the interpreter takes hold when the kernels are imported, and of all
    of them.
    """
    here = Path(__file__).parent
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            IMPORTED_UNCOUNTED,
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--no-header",
            "-rs",
            str(here / "test_closed_form.py"),
            str(here / "test_losses.py"),
            str(here / "test_adam.py"),
            "-k",
            "triton or plain_path or differentiating",
        ],
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        cwd=here.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    if CANNOT_LOOP in finished.stdout:
        pytest.skip(CANNOT_LOOP)
    assert "skipped" not in finished.stdout
