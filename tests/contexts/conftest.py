import pytest

from pfdl.contexts import candidates, clusters

ALL_NUMBERS, HALVINGS, POOLED_STARTS = candidates.NUMBERS, candidates.HALVINGS, clusters.POOLED_STARTS


@pytest.fixture(scope="package", autouse=True)
def some_numbers_of_contexts():
    """Try some numbers up to the most that users' searches try; each takes as long as any other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "NUMBERS", (*range(2, 6), ALL_NUMBERS[-1]))
        patch.setattr(candidates, "HALVINGS", HALVINGS)
        patch.setattr(clusters, "POOLED_STARTS", POOLED_STARTS)
        yield


@pytest.fixture
def all_numbers_of_contexts(monkeypatch):
    """Try what users do."""
    monkeypatch.setattr(candidates, "NUMBERS", ALL_NUMBERS)
