"""Commands refuse wrong settings with one sentence, before they begin."""

import importlib
import sys

import pytest

import keras_gsp as gsp
from tests.training.datasets import layouts

PLAIN = ["--backbone", "glyph-cnn", "--frozen", "none"]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A folder with an empty run, a damaged one, and a file that is none."""
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "damaged", "images"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged" / "settings.json").write_text("{")
    (tmp_path / "words.txt").write_text("no image")
    return tmp_path


REFUSED = [
    ("train glyps", "Similar: glyphs"),
    ("train folder", "`data_dir` must name"),
    ("train folder --data-dir images --crop-size None", "`crop_size` must be"),
    ("train cub --data-dir images", "`backbone_weights` must name"),
    ("train folder --data-dir gone PLAIN", "`data_dir` must exist"),
    ("evaluate empty", "must hold settings.json. Received: empty"),
    ("evaluate damaged", "settings.json must hold a run's settings"),
    ("export empty --output images", "pass --overwrite to replace it"),
    ("search gone words.txt", "Received: gone. It does not exist."),
    ("research.study nothing", "`study` must be one of"),
    ("research.study emoji", "`data_dir` must name"),
    ("research.study emoji --data-dir images --losses xx", "`losses` must be"),
    ("research.study emoji --data-dir images --methods x", "`methods` must be"),
    ("report gone", "gone. There are in .: damaged."),
    ("embed empty --images images --output out", "must be the directory"),
    ("research.pages words.txt", "must be a JSON file"),
    ("research.pages gone", "`sources` must be"),
]
# Refused while options are parsed: printed, with a hint at --help.
MISREAD = [
    ("train glyphs --los ms", "--los"),
    ("train glyphs --seed x", "--seed"),
    ("evaluate", "required"),
    ("train", "cub-gsp-zsr"),
    ("export empty --false-accept-rate 2", "must be in (0, 1)"),
    ("export empty --index none --false-accept-rate 0.1", "needs a gallery"),
    ("search new words.txt --encoder e.keras", "`data_dir` must name"),
    ("research.study emoji --seeds -1", "`seeds` must be positive"),
    ("embed empty --images images --output o --shard-size 0", "shard_size=0"),
]


def run(line):
    name, *arguments = line.replace("PLAIN", " ".join(PLAIN)).split()
    importlib.import_module(f"training.{name}").main(arguments)


@pytest.mark.parametrize("line, sentence", REFUSED, ids=[x for x, _ in REFUSED])
def test_it_is_refused_in_a_sentence(line, sentence, places):
    with pytest.raises(SystemExit) as stopped:
        run(line)
    assert sentence in str(stopped.value.code)
    assert not (places / "runs").exists()


def test_too_few_classes_are_named_before_images_are_decoded(
    places, monkeypatch
):
    layouts.folder(places / "images", [f"class {i:02}" for i in range(16)])

    def decode(*arguments, **settings):
        raise AssertionError("an image was decoded")

    monkeypatch.setattr("training.recipes.data.unreadable", decode)
    monkeypatch.setattr(gsp.data, "image_batches", decode)
    settings = "--classes-per-batch 32 PLAIN"
    with pytest.raises(SystemExit, match="classes_per_batch=32 for"):
        run(f"train folder --data-dir images {settings}")
    assert not (places / "runs").exists()


def test_a_backbone_whose_library_is_missing(places, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(SystemExit) as stopped:
        run("train glyphs --backbone hub:siglip_base_patch16_224")
    assert 'pip install "keras-gsp[hub]"' in str(stopped.value.code)
    assert not (places / "runs").exists()


@pytest.mark.parametrize("line, words", MISREAD, ids=[x for x, _ in MISREAD])
def test_a_wrong_option_is_named(line, words, places, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(line)
    printed = capsys.readouterr()
    # The box around it is as wide as the screen.
    said = f"{stopped.value.code} {printed.err}{printed.out}"
    said = " ".join(said.replace("│", " ").split())
    assert words in said
