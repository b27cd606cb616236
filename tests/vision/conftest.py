import pytest

from tests.vision.interrupted import run


@pytest.fixture
def save_at_every_epoch(monkeypatch):
    """However short the epochs are; processes of their own save as users' do."""
    monkeypatch.setattr("pfdl.vision.resume.SAVE_EVERY", 0.0)


@pytest.fixture(scope="package")
def uninterrupted(tmp_path_factory):
    """The folder of a run that nobody interrupted."""
    return run(tmp_path_factory.mktemp("uninterrupted") / "run")
