"""The paper: PartialDecorrelation, the network g, the two losses, kernels and distributed sums."""
