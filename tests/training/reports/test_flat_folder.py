"""The doctor on a folder without class folders."""

import numpy as np
import pytest
from PIL import Image

from training import doctor


@pytest.fixture
def photos(tmp_path):
    """Three pictures; one has a smaller copy and one an identical one."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (5, 5, 3)).astype("uint8")
        image = Image.fromarray(pixels).resize((96, 80), Image.BICUBIC)
        image.save(folder / f"{number}.png")
    with Image.open(folder / "0.png") as image:
        image.resize((48, 40)).save(folder / "small.jpg")
    (folder / "copy.png").write_bytes((folder / "1.png").read_bytes())
    (folder / "broken.jpg").write_bytes(b"")
    return folder


def test_a_folder_without_classes_has_groups_and_a_page(photos, capsys):
    page = photos.parent / "review.html"
    doctor.main(["--data-dir", str(photos), "--review", str(page)])
    printed = capsys.readouterr().out
    assert "6 images without labels" in printed
    assert "broken.jpg: cannot be read" in printed
    assert "2 groups of near copies, the largest first" in printed
    assert "    0.png = small.jpg\n" in printed
    assert "    1.png = copy.png\n" in printed
    assert "leak" not in printed and "num_train_classes" not in printed
    html = page.read_text()
    assert "small.jpg, 48 x 40" in html
    # What "keep the largest" drops.
    assert "[&#34;small.jpg&#34;]" in html


def test_many_frames_of_one_scene_do_not_hide_a_leak(photos, monkeypatch):
    from training.datasets import inspection
    from training.datasets.own_images import folder_splits

    for side, name, count in (("train", "a", 6), ("test", "b", 1)):
        (photos / side / name).mkdir(parents=True)
        for number in range(count):
            with Image.open(photos / "0.png") as image:
                pixels = np.asarray(image).copy()
            pixels[number, count] = 0
            Image.fromarray(pixels).save(photos / side / name / f"{number}.png")
    for file in photos.glob("*.*"):
        file.unlink()
    monkeypatch.setattr(inspection, "NEAREST", 1)
    found = inspection.inspect(folder_splits(photos), photos)
    assert found.has_leak
