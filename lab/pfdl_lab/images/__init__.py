"""The one experiment on images: rows × data sets × paired seeds × tests. The paper's Table II is a list of rows."""

from pfdl_lab.images.store import StoredImages, image_store, store_images

__all__ = ["StoredImages", "image_store", "store_images"]
