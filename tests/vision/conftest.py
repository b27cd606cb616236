import pytest


@pytest.fixture(scope="package", autouse=True)
def few_numbers_of_contexts():
    """Try three numbers of clusters, not eleven: that search is most of a small training; tests/contexts tests it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("pfdl.contexts.candidates.NUMBERS", (2, 3, 4))
        yield
