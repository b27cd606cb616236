import pytest

from tests.vision.interrupted import run


@pytest.fixture(scope="package", autouse=True)
def few_numbers_of_contexts():
    """Try three numbers of clusters, not eleven: that search is most of a small training; tests/contexts tests it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("pfdl.contexts.candidates.NUMBERS", (2, 3, 4))
        yield


@pytest.fixture
def save_at_every_epoch(monkeypatch):
    """However short the epochs are; processes of their own save as users' do."""
    monkeypatch.setattr("pfdl.vision.resume.SAVE_EVERY", 0.0)


@pytest.fixture(scope="package")
def uninterrupted(tmp_path_factory):
    """The folder of a run that nobody interrupted."""
    return run(tmp_path_factory.mktemp("uninterrupted") / "run")
