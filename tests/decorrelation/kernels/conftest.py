import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="package", autouse=True)
def quick_interpreter():
    """Spare Triton's interpreter what takes most of its time and tests nothing of ours."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    from triton.runtime import interpreter

    patch_language, run, scopes = interpreter._patch_lang, interpreter.GridExecutor.__call__, {}

    def patch_once(function):
        """Patch the language that a module sees, once instead of at every call of one of its functions."""
        if function.__module__ not in scopes:
            scopes[function.__module__] = patch_language(function)
        return SimpleNamespace(restore=lambda: None)

    def run_uncounted(self, *arguments, **settings):
        """Run a kernel, of whose lines none can be counted, without looking for them."""
        counter = sys.gettrace()
        sys.settrace(None)
        try:
            return run(self, *arguments, **settings)
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
