"""PFDL with Lightning: a ready classifier and its data, and callbacks for modules of your own."""

try:
    from pfdl.lightning.callbacks import ContextCallback, PFDLCallback
    from pfdl.lightning.module import ContextDataModule, ImageClassifier
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"pfdl.lightning needs the package {error.name}, which is not installed: pip install 'pfdl[images]' brings all "
        "that images need."
    ) from error

__all__ = ["ContextCallback", "ContextDataModule", "ImageClassifier", "PFDLCallback"]
