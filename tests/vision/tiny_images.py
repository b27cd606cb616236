"""A source of small images that is ready at once: two classes that differ in brightness, two
contexts in colour.
"""

import torch
from PIL import Image

from pfdl.data import make_split
from pfdl.data.images import hash_bytes
from pfdl.data.sources import Sample


class TinySource:
    description = {"kind": "tiny"}  # noqa: RUF012, as the protocol has it

    def __init__(self, per_cell=30, contexts=("blue", "red")):
        generator = torch.Generator().manual_seed(0)
        self.pictures = {}
        self.samples = []
        for label, name in enumerate(("bright", "dark")):
            for place, context in enumerate(contexts):
                for number in range(per_cell):
                    image = torch.randint(0, 120, (3, 8, 8), generator=generator)
                    image += 60 * (1 - label)
                    image[2 * place] += 60
                    self.add(f"{name}/{context or 'any'}/{number:03d}", image, name, context)
        self.samples = tuple(sorted(self.samples))

    def add(self, path, image, name, context, split=""):
        self.pictures[path] = image.to(torch.uint8)
        digest = hash_bytes(self.pictures[path].numpy().tobytes())
        self.samples.append(Sample(path, name, context, digest, digest, split))

    def load(self, path, size, sha256):
        assert size == 8
        return self.pictures[path]

    def save(self, folder):
        """Write the images as files of their paths."""
        for path, pixels in self.pictures.items():
            file = folder / f"{path}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file)


def tiny_data(**settings):
    source = TinySource()
    return source, make_split(source, **{"ratio": "2:1", "validation_fraction": 0.25, **settings})
