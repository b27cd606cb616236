import pytest

from tests.searching import describe_briefly


@pytest.fixture(scope="package", autouse=True)
def few_filters():
    """Describe images briefly here; in tests/contexts, in the documentation and by commands they are described fully."""
    with pytest.MonkeyPatch.context() as patch:
        describe_briefly(patch)
        yield
