"""A short search for contexts, for tests and the processes they start: it is most of a small training."""


def search_shortly(patch):
    """Try two numbers of clusters, not eleven, from fewer starts."""
    patch.setattr("pfdl.contexts.candidates.NUMBERS", (2, 4))
    patch.setattr("pfdl.contexts.candidates.HALVINGS", 1)
    patch.setattr("pfdl.contexts.clusters.POOLED_STARTS", 2)


def describe_briefly(patch):
    """Describe images by 16 filters at each level, not 64, which still tell the colours that tests make contexts of."""
    patch.setattr("pfdl.contexts.statistics.WIDTH", 16)
