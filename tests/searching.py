"""Fewer filters for images, for tests and the processes they start."""


def describe_briefly(patch):
    """Describe images by 16 filters at each level, not 64, which still tell the colours that tests make contexts of."""
    patch.setattr("pfdl.contexts.statistics.WIDTH", 16)
