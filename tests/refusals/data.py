"""What readers of images refuse."""

import pathlib
import types

import numpy as np
from PIL import Image

from keras_gsp import data
from tests.refusals._rows import out_of_range, rows

PIXELS = np.zeros((2, 8, 8, 3), "uint8")
SIX, LABELS = np.zeros((6, 2, 2, 3), "uint8"), [0, 0, 1, 2, 2, 1]
CUT = data.Preprocessing(8)
FIRST = ("a/0.jpg", "keep", "")


def preprocessing(image_size=9, shorter_side=256, **options):
    data.Preprocessing(image_size, shorter_side, **options)


def converted(**options):
    converter = {"scale": None, "offset": None, "image_size": (24, 24)}
    converter |= {"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": False}
    converter |= options
    data.Preprocessing.from_converter(types.SimpleNamespace(**converter))


def image_set(labels=LABELS, class_names="abc", **arguments):
    return data.ImageSet(labels=labels, class_names=class_names, **arguments)


def split(train_size):
    names = "abcdefgh"
    image_set(range(8), names, paths=names).split_classes(train_size)


def sampled(labels=(0, 1), classes=2, samples=2, **options):
    data.ClassBalancedSampler(
        labels, classes_per_batch=classes, samples_per_class=samples, **options
    )


def batches(images=PIXELS, labels=(0, 1), preprocessing=CUT, **options):
    data.image_batches(images, labels, preprocessing=preprocessing, **options)


def folder():
    """Three images of each of two classes, in the working folder."""
    for number in range(6):
        path = pathlib.Path("photos", "ab"[number % 2], f"{number // 2}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(path)
    return "photos"


def listed(*lines):
    path = pathlib.Path(folder(), "list.csv")
    path.write_text("\n".join(lines))
    data.ImageSet.from_csv(path)


def decided(*rows):
    path = pathlib.Path("decisions.csv")
    path.write_text("\n".join(["path,decision,label", *map(",".join, rows)]))
    data.image_folder(folder(), decisions=path)


BOXES = "path,label,x,y,width,height"
ALL = [(f"{c}/{number}.jpg", "drop", "") for c in "ab" for number in "012"]
ROWS = [
    *out_of_range(
        preprocessing,
        {"channels": [4], "max_pixels": [0], "background": [(0, 0, 256)]},
    ),
    (preprocessing, (0,), "image_size=0"),
    (preprocessing, (300,), "image_size=300, shorter_side=256"),
    (converted, {"pad_to_aspect_ratio": True}, "pad_to_aspect_ratio=True"),
    *rows(
        image_set,
        ({"images": SIX, "paths": "abcdef"}, "6 entries"),
        ({"images": SIX.astype("float32")}, "float32"),
        ({"images": SIX[:5]}, "5 images"),
        ({"paths": "abcd", "labels": [0, 1, 2, 3]}, r"0\.\.\.3"),
        ({"paths": "abcdef", "class_names": "abcd"}, r"\['d\'\]"),
        ({"paths": "abcdef", "class_names": "aba"}, "its own name"),
        ({"paths": ["\udce9", *"bcdef"]}, r"UTF-8.*udce9"),
        ({"paths": "abcdef", "boxes": [[0] * 4]}, r"\(6, 4\) numbers"),
        ({"paths": "abcdef", "boxes": [[0, np.nan, 1, 1]] * 6}, "6 outside"),
    ),
    (split, (1.5,), "train_size=1.5, 8"),
    *rows(
        sampled,
        (([0, 1] * 2, 3), "2 classes.*=3"),
        ({"samples": 0}, "samples_per_class=0"),
        ({"seed": "a"}, "seed='a'"),
    ),
    *rows(
        batches,
        ({"augment": "random"}, "augment='random'"),
        ({"images": ["a"], "preprocessing": None}, "file names, with a"),
        ({"augment": "side"}, "shorter_side=None"),
        ({"images": data.ImageSet([0], "a", paths="a")}, "left out"),
    ),
    (data.image_folder, (".",), "no image at any depth"),
    (data.image_folder, ("nowhere",), "nowhere"),
    *rows(
        listed,
        (("file,label", "a/0.jpg,a"), "columns path and label"),
        (("path,label",), "0 rows"),
        (("path,label", "a/0.jpg,a", "a/9.jpg,a"), "1 of 2 missing.*9.jpg"),
        ((BOXES, "a/0.jpg,a,1,2,3,"), "a number in"),
        ((BOXES, "a/0.jpg,a,0,0,.6,.8"), "pixels.*.6"),
    ),
    *rows(
        decided,
        ((("c/0.jpg", "drop", ""),), "1 of 1 paths .* that are not there"),
        ((("a/0.jpg", "remove", ""),), "keep, relabel, drop. .*: remove"),
        ((("a/0.jpg", "relabel", "c"),), "a class of the images .*: c"),
        ((FIRST, FIRST), "one decision for an image"),
        (ALL, "an image to keep"),
    ),
    (
        lambda: data.image_folder(folder(), decisions="gone.csv"),
        (),
        "which is no file",
    ),
]
