"""The doctor finds every problem of a folder."""

import shlex

import numpy as np
import pytest
from PIL import Image

from training import doctor, train
from training.datasets import inspection
from training.datasets.inspection import LEAK, Inspection, inspect
from training.datasets.own_images import csv_splits, folder_splits


def picture(path, seed, size=(48, 40), **options):
    """A smooth picture: noise would not survive a smaller size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 5, 3))
    image = Image.fromarray(pixels.astype("uint8"))
    image.resize(size, Image.Resampling.BICUBIC).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    """train/{a, b} and test/{c, d}, three different images each."""
    for number, name in enumerate(("train/a", "train/b", "test/c", "test/d")):
        for image in range(3):
            picture(tmp_path / name / f"{image}.jpg", 10 * number + image)
    return tmp_path


def examined(folder):
    return inspect(folder_splits(folder))


def test_a_healthy_folder_has_nothing(folder):
    assert examined(folder) == Inspection()


@pytest.mark.parametrize(
    ("target", "where"),
    [
        ("train/a/9.jpg", "in one class"),
        ("train/b/9.jpg", "in two classes of one split"),
        ("test/c/9.jpg", LEAK),
    ],
)
@pytest.mark.parametrize("kind", ["identical", "nearly identical"])
def test_copies_are_found_where_they_are(folder, target, where, kind):
    if kind == "identical":
        source = (folder / "train/a/0.jpg").read_bytes()
        (folder / target).write_bytes(source)
    else:
        picture(folder / target, 0, size=(96, 80), quality=60)
    found = examined(folder)
    pairs = [("train/a/0.jpg", target)]
    assert found == Inspection(copies={(kind, where): pairs})
    assert found.has_leak == (where == LEAK)


def test_the_same_shape_in_another_tone_is_no_copy(folder):
    square = np.full((40, 40, 3), 255, "uint8")
    for name, tone in (("train/a/9.png", 0), ("test/c/9.png", 200)):
        square[10:30, 10:30] = tone
        Image.fromarray(square).save(folder / name)
    assert not examined(folder).has_leak


def test_unusable_files_are_named_with_the_reason(folder):
    (folder / "train/a/7.jpg").write_bytes(b"")
    whole = (folder / "train/a/0.jpg").read_bytes()
    (folder / "train/a/8.jpg").write_bytes(whole[: len(whole) // 2])
    picture(folder / "train/b/6.png", 70, size=(48, 8))
    Image.new("RGB", (40, 40), (9, 9, 9)).save(folder / "train/b/7.png")
    found = examined(folder)
    assert list(found.unreadable) == ["train/a/7.jpg", "train/a/8.jpg"]
    assert found.tiny == ["train/b/6.png"]
    assert found.blank == ["train/b/7.png"]


def test_a_file_made_to_fill_the_memory_is_not_decoded(folder, monkeypatch):
    picture(folder / "train/a/9.png", 80, size=(49, 40))
    monkeypatch.setattr(inspection, "MAX_PIXELS", 48 * 40)
    found = examined(folder)
    assert found.unreadable == {"train/a/9.png": "49 x 40 pixels are too many"}


def test_a_turned_photograph_is_compared_as_it_is_shown(folder):
    with Image.open(folder / "train/a/0.jpg") as image:
        exif = Image.Exif()
        exif[274] = 6
        turned = image.transpose(Image.Transpose.ROTATE_90)
        turned.save(folder / "test/c/9.jpg", exif=exif, quality=95)
    pairs = [("train/a/0.jpg", "test/c/9.jpg")]
    assert examined(folder).copies == {("nearly identical", LEAK): pairs}


def test_a_copy_of_a_query_in_the_gallery_is_a_leak(folder, tmp_path):
    files = sorted(folder.rglob("*.jpg"))
    (folder / "test/d/8.jpg").write_bytes(files[0].read_bytes())
    splits = ["query"] * 3 + ["gallery"] * 3 + ["train"] * 6
    labels = [*"xxxxxx", *"aaabbb"]
    rows = [*zip(files, labels, splits, strict=True)]
    rows.append((folder / "test/d/8.jpg", "x", "gallery"))
    lines = [",".join(map(str, row)) for row in rows]
    table = tmp_path / "list.csv"
    table.write_text("\n".join(["path,label,split", *lines]))
    found = inspect(csv_splits(table))
    pairs = [("test/c/0.jpg", "test/d/8.jpg")]
    assert found == Inspection(copies={("identical", LEAK): pairs})


def test_the_command_ends_with_one_on_leakage_alone(
    folder, capsys, monkeypatch
):
    picture(folder / "train/b/3.jpg", 90)
    arguments = ["--data-dir", str(folder)]
    doctor.main(arguments)
    printed = capsys.readouterr().out
    assert "train: 7 images of 2 classes, 3 to 4 a class" in printed
    found, command, clutter = printed.rstrip().split("\n")[-3:]
    assert found == "no leakage"
    assert command == (
        f"Next: python -m training.train folder --data-dir {folder}"
    )
    options = clutter.partition(", add ")[2].split()
    given = []
    monkeypatch.setattr(train, "_train", lambda _, parsed: given.append(parsed))
    train.main([*command.split()[4:], *options])
    (parsed,) = given
    assert parsed.recipe.transport_ratio == 0.1
    assert parsed.recipe.pooling == "gsp-affine"
    picture(folder / "test/c/9.jpg", 0, size=(96, 80))
    with pytest.raises(SystemExit) as caught:
        doctor.main(arguments)
    assert caught.value.code == 1
    printed = capsys.readouterr().out
    assert f"1 pair(s) of nearly identical images {LEAK}" in printed


def test_the_next_command_quotes_what_a_shell_would_read(tmp_path, capsys):
    folder = tmp_path / "it's; rm -r x"
    for number, name in enumerate(("a", "b")):
        picture(folder / name / "<b>.jpg", number)
    doctor.main(["--data-dir", str(folder)])
    line = capsys.readouterr().out.split("Next: ")[1].splitlines()[0]
    assert shlex.split(line)[3:] == ["folder", "--data-dir", str(folder)]
