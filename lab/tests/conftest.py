import pytest
from tests.searching import describe_briefly


@pytest.fixture(scope="module", autouse=True)
def few_filters():
    """Describe images briefly here; the tests of contexts, of commands and of the documentation do it fully."""
    with pytest.MonkeyPatch.context() as patch:
        describe_briefly(patch)
        yield
