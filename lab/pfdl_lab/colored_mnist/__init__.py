"""The experiment on Colored-MNIST."""
