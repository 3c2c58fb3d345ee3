"""Advice on a folder of images: what is tried, scored, said and refused."""

import re
import shlex
import textwrap
import time

import numpy as np
import pytest

import keras_gsp as gsp
from tests.training.datasets import layouts
from training import advise
from training.advise import Advice, AdviseCommand, Row
from training.recipes.glyph_network import glyph_network
from training.recipes.recipe import Recipe
from training.runs.scoring import part_scores

SIZE = 24


def row(name, *scores, recipe=None):
    """A row with these scores, in %, of six classes of two queries."""
    queries = np.repeat(np.array(scores, float), 2) / 100
    return Row(name, "chosen", queries, recipe=recipe)


RAW = row("raw features", 10, 20, 30, 40, 50, 60)
HEAD = row("head", 15, 26, 34, 45, 56, 64, recipe=Recipe())
WORSE = row("head", 5, 14, 26, 35, 44, 56, recipe=Recipe())
WHITE = row("whitening", 14, 27, 36, 43, 54, 66)
UNSURE = row("head", 40, 6, 60, 32, 80, 50, recipe=Recipe())
LOW = row("raw features", 1, 2, 3, 4, 5, 6)
TIMELESS = {"LoRA": "no time", "fine-tuning": "no time"}


@pytest.mark.parametrize(
    ("rows", "skipped", "says"),
    [
        ([RAW, WORSE], {}, "Do not train. Take raw features."),
        (
            [RAW, WHITE, WORSE],
            {},
            "Do not train. Take whitening, which gains +",
        ),
        (
            [RAW, WORSE],
            TIMELESS,
            "cannot tell in 10 minutes: give --minutes 30",
        ),
        ([RAW], {"head": "no time", **TIMELESS}, "cannot tell in 10 minutes"),
        ([RAW, WHITE], TIMELESS, "Without training: whitening, which gains"),
        ([RAW, HEAD], TIMELESS, "Train: head, which gains +5.0 ["),
        ([RAW, HEAD], TIMELESS, "No time was left for LoRA and fine-tuning."),
        ([RAW, WHITE, UNSURE], {}, "no significant difference to whitening"),
        ([LOW], {}, "Undecided: MAP@R is 3.5 % at most"),
    ],
)
def test_it_never_says_do_not_train_of_what_had_no_time(rows, skipped, says):
    advice = Advice(AdviseCommand("photos"))
    advice.rows, advice.skipped = rows, skipped
    advice.classes = np.repeat(np.arange(6), 2)
    text = advise.verdict(advice)
    assert says in text
    assert ("Do not train" in text) == (says.startswith("Do not"))


def test_each_part_searches_the_others_which_do_not_know_it():
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(6), 5)
    rows = np.eye(6)[labels] + 0.5 * rng.normal(size=(30, 6))
    scores = part_scores(rows, labels)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    # Each class has one image a part: the others' four are all but itself.
    assert scores.shape == (30,) and np.isfinite(scores).all()
    nearest = np.argsort(distances + 9 * np.eye(30))[:, 0]
    assert abs(scores.mean() - (labels[nearest] == labels).mean()) < 0.3
    augmentation = gsp.retrieval.NeighborAugmentation(0)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(
        part_scores(rows, labels, augmentation), part_scores(unit, labels)
    )


def command(folder, num_classes=12, **options):
    names = [f"class {i}" for i in range(num_classes)]
    images = layouts.folder(folder / "images", names, images=4)
    weights = folder / "glyph.weights.h5"
    glyph_network((SIZE, SIZE, 3), "glyph-cnn").save_weights(weights)
    options = {
        **{"--data-dir": images, "--backbone": "glyph-cnn"},
        **{"--backbone-weights": weights, "--crop-size": SIZE, "--steps": 4},
        **{"--output": folder / "advice", **options},
    }
    return [str(part) for pair in options.items() for part in pair]


def test_few_classes_are_refused_before_weights_are_read(tmp_path, cache):
    words = command(tmp_path, num_classes=6)
    words[words.index("--backbone-weights") + 1] = str(tmp_path / "images")
    with pytest.raises(SystemExit, match="at least 12 classes.*Received: 6"):
        advise.main(words)


@pytest.mark.filterwarnings("ignore", "always:.*unusable")
def test_without_time_it_scores_raw_features_and_its_code_runs(
    tmp_path, cache, capsys
):
    words = command(tmp_path, **{"--minutes": 1e-3})
    (tmp_path / "images" / "class 3" / "broken.png").write_bytes(b"no image")
    advise.main(words)
    printed = capsys.readouterr().out
    assert "note: 1 unusable images of images are left out" in printed
    assert printed.startswith("Reading ")
    assert "give --minutes 0.003" in printed
    page = (tmp_path / "advice" / "advice.md").read_text()
    assert page.count("| no time |") == 8
    exec(textwrap.dedent(page.partition("Next:")[2]), {})
    assert "class" in capsys.readouterr().out


def test_rows_after_the_minutes_are_listed(monkeypatch):
    advice = Advice(AdviseCommand("photos"))

    def late(self, name):
        self.end = time.monotonic()
        raise TimeoutError

    monkeypatch.setattr(Advice, "_read", lambda self: None)
    monkeypatch.setattr(Advice, "_raw", lambda self, name: RAW)
    monkeypatch.setattr(Advice, "_class_token", late)
    advice.run()
    assert advice.rows == [RAW]
    assert [*advice.skipped.values()] == ["no time"] * 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_row_is_scored_on_the_same_images(tmp_path, cache, capsys):
    advise.main(command(tmp_path))
    page = (tmp_path / "advice" / "advice.md").read_text()
    rows = re.findall(r"^\| \**([\w ,+-]+?)\** \|", page, re.MULTILINE)
    assert {"raw features", "whitening", "second look, sum", "head"} <= {*rows}
    assert {"second look, window", "LoRA", "fine-tuning"} <= {*rows}
    assert "the same 16 images of 4 classes" in page
    # Finished runs are found again.
    capsys.readouterr()
    advise.main(command(tmp_path))
    assert "step/s" not in capsys.readouterr().out


def test_the_command_of_a_trained_row_is_the_row():
    recipe = AdviseCommand("a b").recipe.with_(pooling="gsp", learning_rate=0.1)
    words = shlex.split(advise.training_command(AdviseCommand("a b"), recipe))
    assert words[3:6] == ["folder-features", "--data-dir", "a b"]
    options = dict(zip(words[6::2], words[7::2], strict=True))
    assert options.pop("--corrupt-images") == "skip"
    assert options == {"--pooling": "gsp", "--learning-rate": "0.1"}
