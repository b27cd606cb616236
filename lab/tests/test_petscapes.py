"""PetScapes, built from photos, trimaps and scenes that are made here."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pfdl_lab.petscapes import BACKGROUND, PET, build, compose, cut_out, scene_path

RED, GREEN, BLUE = (220, 20, 20), (20, 220, 20), (20, 20, 220)


@pytest.fixture
def pet():
    """A photo on green, of a pet whose left half is red and whose right half is blue."""
    photo = np.full((60, 80, 3), GREEN, np.uint8)
    photo[20:50, 20:40], photo[20:50, 40:60] = RED, BLUE
    trimap = np.full((60, 80), BACKGROUND, np.uint8)
    trimap[18:52, 18:62] = 3
    trimap[20:50, 20:60] = PET
    return Image.fromarray(photo), trimap


def test_a_pet_keeps_its_colours_and_no_old_background(pet):
    colours, opacity = cut_out(*pet)
    assert (opacity > 0.99)[4:-4, 4:-4].all()
    assert opacity[0, 0] < 0.5
    assert (colours[..., 1] < 60).all()  # the photo's green shines through nowhere


@pytest.mark.parametrize(("flip", "left", "right"), [(False, RED, BLUE), (True, BLUE, RED)])
def test_a_pet_stands_in_its_box_mirrored_where_the_table_says_so(pet, flip, left, right):
    scene = Image.new("RGB", (64, 64), (128, 128, 128))
    frame = compose(*pet, scene, flip=flip, box=(10, 20, 60, 50), cut_edges="")
    assert frame.size == (96, 96)
    assert np.allclose(frame.getpixel((20, 45)), left, atol=8)
    assert np.allclose(frame.getpixel((60, 45)), right, atol=8)
    for outside in ((5, 45), (75, 45), (40, 15), (40, 75)):
        assert np.allclose(frame.getpixel(outside), 128, atol=2)


def test_a_pet_that_its_photo_cuts_at_the_top_fades_there(pet):
    scene = Image.new("RGB", (64, 64), (128, 128, 128))
    photo, trimap = pet
    cut = photo.crop((0, 30, 80, 60)), trimap[30:]
    hard, faded = (
        np.asarray(compose(*cut, scene, flip=False, box=(10, 20, 60, 50), cut_edges=edges))
        for edges in ("", "t")
    )
    assert abs(int(faded[20, 25, 0]) - 128) < abs(int(hard[20, 25, 0]) - 128)
    assert np.array_equal(faded[30:60, 20:40], hard[30:60, 20:40])


def test_images_are_built_from_the_two_sets_and_the_table(pet, tmp_path):
    photo, trimap = pet
    for folder in ("pets/images", "pets/annotations/trimaps", "scenes/val/images"):
        (tmp_path / folder).mkdir(parents=True)
    photo.save(tmp_path / "pets" / "images" / "pug_1.jpg")
    Image.fromarray(trimap).save(tmp_path / "pets" / "annotations" / "trimaps" / "pug_1.png")
    Image.new("RGB", (64, 64)).save(tmp_path / "scenes" / "val" / "images" / "val_7.JPEG")
    line = {"path": "dog_bull/alp/pug_1.jpg", "background": "val_7.JPEG", "flip": 0}
    line |= {"x": 10, "y": 20, "w": 60, "h": 50, "cut_edges": "b"}
    pd.DataFrame([line]).to_csv(tmp_path / "meta.csv", index=False)
    places = (tmp_path / "pets", tmp_path / "scenes", tmp_path / "meta.csv")
    assert build(*places, tmp_path / "out") == 1
    with Image.open(tmp_path / "out" / "dog_bull" / "alp" / "pug_1.jpg") as made:
        assert made.size == (96, 96)
    pd.DataFrame([{"path": "a.jpg"}]).to_csv(tmp_path / "meta.csv", index=False)
    with pytest.raises(ValueError, match="has no column background"):
        build(*places, tmp_path / "out")


def test_a_scene_lies_where_tiny_imagenet_keeps_it(tmp_path):
    assert scene_path(tmp_path, "n09193705_91.JPEG") == (
        tmp_path / "train" / "n09193705" / "images" / "n09193705_91.JPEG"
    )
    assert scene_path(tmp_path, "val_3.JPEG") == tmp_path / "val" / "images" / "val_3.JPEG"
