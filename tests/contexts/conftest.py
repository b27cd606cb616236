import pytest

from pfdl.contexts import candidates

NUMBERS = candidates.NUMBERS


@pytest.fixture(scope="package", autouse=True)
def all_numbers_of_contexts():
    """Try what users do; the other tests try fewer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "NUMBERS", NUMBERS)
        yield
