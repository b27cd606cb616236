"""What holds for all tests."""

from hypothesis import settings

settings.register_profile("pfdl", deadline=None)  # tests never measure time
settings.load_profile("pfdl")
