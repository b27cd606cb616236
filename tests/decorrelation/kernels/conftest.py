import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HAS_TRITON = INTERPRETING or torch.cuda.is_available()
needs_triton = pytest.mark.skipif(
    not HAS_TRITON, reason="no GPU and no interpreter: see test_interpreter.py"
)
CANNOT_LOOP = (
    "this Triton's interpreter cannot loop with this NumPy:"
    " github.com/triton-lang/triton/issues/9171"
)


@pytest.fixture(scope="package", autouse=True)
def quick_interpreter():
    """Spare Triton's interpreter what takes most of its time and tests nothing of ours."""
    if not INTERPRETING:
        yield
        return
    from triton.runtime import interpreter
    from triton.runtime.errors import InterpreterError

    from pfdl.decorrelation.kernels.triton_losses import fit_errors

    try:
        fit_errors(torch.ones(2, 2), torch.ones(2, 2))
    except InterpreterError as error:
        if "only 0-dimensional arrays" not in str(error):
            raise
        pytest.skip(CANNOT_LOOP)

    patch_language = interpreter._patch_lang
    scopes = {}

    def patch_once(function):
        """Patch the language that a module sees, once instead of at every call of one of its
        functions.
        """
        if function.__module__ not in scopes:
            scopes[function.__module__] = patch_language(function)
        return SimpleNamespace(restore=lambda: None)

    run_grid = interpreter.GridExecutor.__call__

    def run_uncounted(*arguments, **settings):
        """Run a kernel without counting lines: those of kernels are left out, and the interpreter
        has many.
        """
        counter = sys.gettrace()
        sys.settrace(None)
        try:
            return run_grid(*arguments, **settings)
        finally:
            sys.settrace(counter)

    builder = interpreter.interpreter_builder
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patch_once)
        patch.setattr(interpreter.GridExecutor, "__call__", run_uncounted)
        # A GPU does not check that 32 bits hold each index either.
        patch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
        yield
    for scope in scopes.values():
        scope.restore()
