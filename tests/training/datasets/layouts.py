"""Tiny data sets, written in the layouts of the real ones."""

import tarfile
import zipfile

import numpy as np
from PIL import Image


def picture(path, seed=0, size=(20, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3))
    Image.fromarray(pixels.astype("uint8")).save(path)


def folder(root, classes, images=3):
    for number, name in enumerate(classes):
        for image in range(images):
            picture(root / name / f"{image:04d}.jpg", seed=7 * number + image)
    return root


def cub(root, num_classes=4, images=3):
    root = root / "CUB_200_2011"
    lists = {"images": [], "image_class_labels": [], "classes": []}
    for label in range(1, num_classes + 1):
        name = f"{label:03d}.Bird_{label}"
        lists["classes"].append(f"{label} {name}")
        for image in range(images):
            number = len(lists["images"]) + 1
            file = f"{name}/Bird_{image:04d}_{number}.jpg"
            picture(root / "images" / file, seed=number)
            lists["images"].append(f"{number} {file}")
            lists["image_class_labels"].append(f"{number} {label}")
    for name, lines in lists.items():
        (root / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return root


def cars(root, num_classes=4, images=3):
    from scipy.io import savemat

    rows = []
    for number in range(num_classes * images):
        file = f"car_ims/{number + 1:06d}.jpg"
        picture(root / file, seed=number)
        rows.append((file, 1, 2, 3, 4, number // images + 1, number % 2))
    names = "relative_im_path bbox_x1 bbox_y1 bbox_x2 bbox_y2 class test"
    kind = [(name, object) for name in names.split()]
    classes = [f"Car {i}" for i in range(num_classes)]
    content = {
        "annotations": np.array([rows], dtype=kind)[0],
        "class_names": np.array(classes, dtype=object),
    }
    savemat(root / "cars_annos.mat", content)
    return root


def sop(root, products=(3, 3), images=2):
    root = root / "Stanford_Online_Products"
    number = product = 0
    for part, count in zip(("train", "test"), products, strict=True):
        lines = ["image_id class_id super_class_id path"]
        for _ in range(count):
            product += 1
            for image in range(images):
                number += 1
                file = f"chair_final/{product}_{image}.JPG"
                picture(root / file, seed=number)
                lines.append(f"{number} {product} 1 {file}")
        (root / f"Ebay_{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def in_shop(root, items=(3, 2)):
    rows = []
    for item in range(sum(items)):
        statuses = ["train"] * 3
        if item >= items[0]:
            statuses = ["query", "query", "gallery"]
        for image, status in enumerate(statuses):
            file = f"img/WOMEN/Tees/id_{item:08d}/{image:02d}_front.jpg"
            picture(root / file, seed=10 * item + image)
            rows.append(f"{file} id_{item:08d} {status}")
    lines = [str(len(rows)), "image_name item_id evaluation_status", *rows]
    (root / "Eval").mkdir()
    (root / "Eval/list_eval_partition.txt").write_text("\n".join(lines))
    return root


def zipped(source, archive, root_name=None):
    with zipfile.ZipFile(archive, "w") as content:
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source)
            content.write(path, f"{root_name}/{name}" if root_name else name)
    return archive


def tarred(source, archive):
    with tarfile.open(archive, "w:gz") as content:
        content.add(source, source.name)
    return archive
