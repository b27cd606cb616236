"""Images: backbones, features, the Lightning module, training, evaluation, export."""
