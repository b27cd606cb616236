from tests.vision.conftest import few_numbers_of_contexts

__all__ = ["few_numbers_of_contexts"]
