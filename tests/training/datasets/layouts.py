"""Tiny data sets, written in the layouts of the real ones."""

import gzip
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


def cifar10(root, images=2):
    root = root / "cifar-10-batches-bin"
    root.mkdir(parents=True)
    names = [f"class{i}" for i in range(10)]
    (root / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    for name in ("data_batch_1.bin", "test_batch.bin"):
        labels = np.tile(np.arange(10, dtype="uint8"), images)
        _cifar(root / name, [labels])
    return root


def cifar100(root, images=1):
    root = root / "cifar-100-binary"
    root.mkdir(parents=True)
    supers = [f"super{i}" for i in range(16)]
    supers += [
        "flowers",
        "large_man-made_outdoor_things",
        "large_natural_outdoor_scenes",
        "trees",
    ]
    (root / "coarse_label_names.txt").write_text("\n".join(supers))
    fine_names = [f"sub{i}" for i in range(100)]
    (root / "fine_label_names.txt").write_text("\n".join(fine_names))
    fine = np.tile(np.arange(100, dtype="uint8"), images)
    for name in ("train.bin", "test.bin"):
        _cifar(root / name, [fine // 5, fine])
    return root


def _cifar(file, labels):
    # Every pixel of an image is its last label: easy to recognize.
    pixels = np.repeat(labels[-1][:, None], 3072, axis=1)
    file.write_bytes(np.column_stack([*labels, pixels]).tobytes())


def mnist(root, images=20):
    root.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        labels = np.arange(images, dtype="uint8") % 10
        pixels = np.repeat(labels, 28 * 28)
        for name, kind, sizes, data in (
            ("images-idx3", 0x803, (images, 28, 28), pixels),
            ("labels-idx1", 0x801, (images,), labels),
        ):
            header = np.array([kind, *sizes], ">i4").tobytes()
            content = gzip.compress(header + data.tobytes())
            (root / f"{part}-{name}-ubyte.gz").write_bytes(content)
    return root


def omniglot(root, parts=("images_background", "images_evaluation")):
    for number, part in enumerate(parts):
        for character in (1, 2):
            for drawer in (1, 2):
                name = f"{character:04d}_{drawer:02d}.png"
                alphabet = f"Alphabet{number}/character{character:02d}"
                picture(root / part / alphabet / name, seed=drawer)
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
