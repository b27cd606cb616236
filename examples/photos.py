"""Write photos/train and photos/test: camels on sand, zebras on grass, in the test as often not.

Run: python examples/photos.py
"""

from pfdl.data import write_photos

counts = write_photos("photos")
print("photos:", ", ".join(f"{count} images to {part}" for part, count in counts.items()))
