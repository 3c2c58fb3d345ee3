"""The doctor finds every problem of a folder."""

import shlex

import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from training import doctor
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
    return inspect(folder_splits(folder), folder)


def test_a_healthy_folder_has_nothing(folder):
    assert examined(folder) == Inspection()


@pytest.mark.parametrize(
    ("target", "where"),
    [
        ("train/a/9.jpg", "in one class"),
        ("train/b/9.jpg", "in several classes of one split"),
        ("test/c/9.jpg", LEAK),
    ],
)
def test_copies_are_found_where_they_are(folder, target, where):
    (folder / target).write_bytes((folder / "train/a/0.jpg").read_bytes())
    found = examined(folder)
    groups = [sorted(["train/a/0.jpg", target])]
    assert found == Inspection(copies={where: groups})
    assert found.has_leak == (where == LEAK)
    # The largest is first.
    picture(folder / target, 0, size=(96, 80), quality=60)
    groups = [[target, "train/a/0.jpg"]]
    assert examined(folder) == Inspection(copies={where: groups})


def test_the_same_shape_in_another_tone_is_no_copy(folder):
    square = np.full((40, 40, 3), 255, "uint8")
    for name, tone in (("train/a/9.png", 0), ("test/c/9.png", 200)):
        square[10:30, 10:30] = tone
        Image.fromarray(square).save(folder / name)
    assert not examined(folder).has_leak


def test_unusable_files_are_named_with_the_reason(folder, monkeypatch):
    (folder / "train/a/7.jpg").write_bytes(b"")
    whole = (folder / "train/a/0.jpg").read_bytes()
    (folder / "train/a/8.jpg").write_bytes(whole[: len(whole) // 2])
    picture(folder / "train/b/6.png", 70, size=(48, 8))
    Image.new("RGB", (40, 40), (9, 9, 9)).save(folder / "train/b/7.png")
    found = examined(folder)
    assert list(found.unreadable) == ["train/a/7.jpg", "train/a/8.jpg"]
    assert found.tiny == ["train/b/6.png"]
    assert found.blank == ["train/b/7.png"]
    # A file that is made to fill the memory is not decoded.
    picture(folder / "train/a/9.png", 80, size=(49, 40))
    small = gsp.data.Preprocessing(32, max_pixels=48 * 40)
    monkeypatch.setattr(inspection, "SMALL", small)
    words = examined(folder).unreadable["train/a/9.png"]
    assert "max_pixels=1920 pixels. Received: 49 x 40" in words


def test_dark_and_clear_pictures_are_not_blank(tmp_path):
    columns, rows = np.meshgrid(np.arange(64), np.arange(64))
    deep = Image.fromarray((columns * 1000 + 300).astype("uint16"))
    deep.save(tmp_path / "deep.png")
    logo = np.zeros((64, 64, 4), "uint8")
    logo[..., 3] = 255 * ((columns - 32) ** 2 + (rows - 32) ** 2 < 400)
    Image.fromarray(logo).save(tmp_path / "logo.png")
    photos = gsp.data.ImageSet(
        [0, 0],
        ("a",),
        paths=(str(tmp_path / "deep.png"), str(tmp_path / "logo.png")),
    )
    assert inspection.inspect(photos, tmp_path).blank == []


def test_a_turned_photograph_is_compared_as_it_is_shown(folder):
    with Image.open(folder / "train/a/0.jpg") as image:
        exif = Image.Exif()
        exif[274] = 6
        turned = image.transpose(Image.Transpose.ROTATE_90)
        turned.save(folder / "test/c/9.jpg", exif=exif, quality=95)
    groups = [["test/c/9.jpg", "train/a/0.jpg"]]
    assert examined(folder).copies == {LEAK: groups}


def test_a_copy_of_a_query_in_the_gallery_is_a_leak(folder, tmp_path):
    files = sorted(folder.rglob("*.jpg"))
    copy = folder / "test/d/8.jpg"
    copy.write_bytes(files[0].read_bytes())
    lines = ["path,label,split", f"{copy},x,gallery"]
    for number, file in enumerate(files):
        facts = "x,query x,gallery a,train b,train".split()[number // 3]
        lines.append(f"{file},{facts}")
    table = tmp_path / "list.csv"
    table.write_text("\n".join(lines))
    found = inspect(csv_splits(table), folder)
    groups = [["test/c/0.jpg", "test/d/8.jpg"]]
    assert found == Inspection(copies={LEAK: groups})


def test_a_folder_without_classes_has_groups_and_a_page(tmp_path, capsys):
    photos, page = tmp_path / "photos", tmp_path / "review.html"
    for number in range(3):
        picture(photos / f"{number}.png", number, size=(96, 80))
    picture(photos / "small.jpg", 0)
    (photos / "copy.png").write_bytes((photos / "1.png").read_bytes())
    (photos / "broken.jpg").write_bytes(b"")
    doctor.main(["--data-dir", str(photos), "--review", str(page)])
    printed = capsys.readouterr().out
    assert "6 images without labels" in printed
    assert "broken.jpg: cannot be read" in printed
    assert "2 groups of near copies, the largest first" in printed
    assert "    0.png = small.jpg\n" in printed
    assert "    1.png = copy.png\n" in printed
    assert "leak" not in printed
    html = page.read_text()
    assert "small.jpg, 48 x 40" in html
    # What "keep the largest" drops.
    assert "[&#34;small.jpg&#34;]" in html


def test_many_frames_of_one_scene_do_not_hide_a_leak(tmp_path, monkeypatch):
    for number in range(6):
        file = tmp_path / "train" / "a" / f"{number}.jpg"
        picture(file, 0, quality=70 + number)
    picture(tmp_path / "test" / "b" / "0.jpg", 0, quality=90)
    monkeypatch.setattr(inspection, "NEAREST", 1)
    assert examined(tmp_path).has_leak


def test_the_command_ends_with_one_on_leakage_alone(folder, capsys):
    # What a shell would read is quoted.
    folder = folder.rename(folder.with_name("it's; rm -r x"))
    picture(folder / "train/b/3.jpg", 90)
    arguments = ["--data-dir", str(folder)]
    doctor.main(arguments)
    printed = capsys.readouterr().out
    assert "train: 7 images of 2 classes, 3 to 4 in each" in printed
    found, line = printed.rstrip().split("\n")[-2:]
    assert found == "no leakage (copies across sides)"
    assert shlex.split(line)[3:] == ["training.train", "folder", *arguments]
    picture(folder / "test/c/9.jpg", 0, size=(96, 80))
    # The page needs no encoder.
    page = folder.parent / "review.html"
    with pytest.raises(SystemExit) as caught:
        doctor.main([*arguments, "--review", str(page)])
    assert caught.value.code == 1
    printed = capsys.readouterr().out
    assert f"1 group of copies {LEAK}" in printed
    assert "test/c/9.jpg, 96 x 80" in page.read_text()
