"""Advice on a folder of images: what is tried, scored, said and refused."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.training.datasets import layouts
from training import advise, train
from training.advise import AdviseCommand, Comparison, Row
from training.recipes.glyph_network import glyph_network
from training.recipes.recipe import Recipe
from training.runs.raw_baseline import pooled

SIZE = 24


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "glyph.weights.h5"
    glyph_network((SIZE, SIZE, 3), "glyph-cnn").save_weights(file)
    return file


def command(folder, weights, num_classes=12, **own):
    names = [f"class {i}" for i in range(num_classes)]
    images = layouts.folder(folder / "images", names, images=4)
    options = {
        **{"--data-dir": images, "--backbones": f"glyph-cnn={weights}"},
        **{"--crop-size": SIZE, "--head-steps": 2, "--tuning-steps": 2},
        **{"--output": folder / "advice", **own},
    }
    return [str(part) for pair in options.items() for part in pair]


def table_of(folder):
    """Step -> MAP@R, of the table that was written."""
    page = (folder / "advice" / "advice.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if "|" in line][2:]
    return {row[1].strip(" *"): row[3].strip() for row in rows}


def row(name, *scores, pooling=""):
    """A row with these scores of classes of two queries, in one fold."""
    return Row(
        name,
        Recipe(),
        pooling,
        [np.repeat(np.array(scores, float), 2)],
        [np.repeat(np.arange(len(scores)), 2)],
    )


RAW_ROW = row("raw features", 10, 20, 30, 40, 50, 60, pooling="GeM 3")
SURE = row("head", 15, 26, 34, 45, 56, 64)
UNSURE = row("LoRA", 40, 6, 60, 32, 80, 50)
LEVEL = row("LoRA", 15, 26, 33, 46, 54, 67)
WORSE = row("head", 5, 14, 26, 35, 44, 56)
LOW = row("raw features", 1, 2, 3, 4, 5, 6, pooling="average")


@pytest.mark.parametrize(
    ("rows", "best", "says"),
    [
        ([RAW_ROW, WORSE], RAW_ROW, "Do not train: search with the raw featu"),
        ([RAW_ROW, SURE], SURE, "Train: head, which gains +5.0 ["),
        ([RAW_ROW, SURE, UNSURE], UNSURE, "cannot tell it for sure from the c"),
        ([RAW_ROW, SURE, LEVEL], SURE, "Train: head"),
        ([LOW], LOW, "Undecided: MAP@R is 3.5 % at most"),
    ],
    ids=["worse", "sure", "unsure", "level", "low"],
)
def test_a_step_must_gain_what_is_worth_it(rows, best, says):
    tried = Comparison(AdviseCommand("photos"))
    tried.rows = rows
    assert tried.best is best
    assert says in advise.verdict(rows, best, {})
    page = advise.page_of(tried)
    assert f"| **{best.name}** |" in page and page.count("**") == 2


@pytest.mark.parametrize(
    ("lora", "is_tried"),
    [
        (row("LoRA", 20, 31, 40, 52, 60, 69), True),  # the best so far
        (row("LoRA", 40, 6, 60, 32, 80, 50), True),  # perhaps
        (row("LoRA", 5, 14, 26, 35, 44, 56), False),
        (None, True),  # not tried
    ],
)
def test_fine_tuning_follows_where_lora_may_gain(lora, is_tried, monkeypatch):
    tried = Comparison(AdviseCommand("photos"))
    raw = tried.command.features()[0]
    images = SimpleNamespace(images=np.zeros((1, 1, 1, 64)))
    names, rows = [], {"head": SURE, "LoRA": lora}

    def step(name, recipe, *_):
        names.append(name)
        found = rows.get(name)
        if found is not None:
            monkeypatch.setattr(found, "recipe", recipe)
            tried.rows.append(found)
        return found

    tried.rows = [RAW_ROW]
    for name, own in {
        "_try_raw": lambda recipes: raw,
        "_splits": lambda *_: SimpleNamespace(train=images),
        "_try": step,
        "_add_folds": lambda: None,
    }.items():
        monkeypatch.setattr(tried, name, own)
    tried.run()
    assert ("fine-tuning" in names) == is_tried
    assert ("fine-tuning" in tried.skipped) != is_tried


def test_a_step_that_diverges_at_every_rate_is_left_out(monkeypatch):
    def diverge(*_, **__):
        raise ValueError("`embeddings` must be finite.")

    tried = Comparison(AdviseCommand("photos"))
    tried.rows.append(RAW_ROW)
    monkeypatch.setattr(tried, "_run", diverge)
    monkeypatch.setattr(tried, "_cost", lambda recipe: 0.0)
    assert tried._try("head", Recipe(), [advise.HEAD_RATES]) is None
    assert tried.rows == [RAW_ROW]
    assert tried.skipped == {"head": "diverged at every rate"}


def test_raw_features_are_those_of_the_layer_that_is_named():
    maps = np.random.default_rng(0).random((12, 3, 2, 5)).astype("float32")
    for name, words in advise.RAW.items():
        layer = eval(words, {"keras": keras, "gsp": gsp})
        expected = keras.ops.convert_to_numpy(layer(maps))
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(pooled(maps)[name], expected, rtol=1e-5)
        # Normalized, and no power overflows.
        np.testing.assert_allclose(
            pooled(1e9 * maps)[name], expected, rtol=1e-5
        )


@pytest.mark.parametrize("dataset", ["folder", "csv"])
@pytest.mark.parametrize(
    "own",
    [
        {"whitening": "learned", "embedding_size": 64},
        {"steps": 40, "loss": "ms", "pooling": "delf", "learning_rate": 3e-3},
        {"steps": 40, "loss": "proxy-anchor", "pooling": "gsp"}
        | {"cache_features": False, "frozen": "batch-norm", "lora_rank": 8}
        | {"augmentation": "mlrc-area"},
    ],
    ids=["whitening", "head", "LoRA"],
)
def test_the_printed_command_trains_what_was_chosen(dataset, own, monkeypatch):
    asked = AdviseCommand(
        "photos", dataset, backbones=("mobilenet-v2@0.35=file.h5",)
    )
    recipe = asked.features()[0].with_(**own)
    words = advise.training_command(asked, recipe)
    given = []
    monkeypatch.setattr(train, "_train", lambda _, parsed: given.append(parsed))
    train.main(words[3:])
    found = given[0].recipe
    own = {k: getattr(recipe, k) for k in (*advise.CHOSEN, *advise.OPTIONS)}
    assert found.with_(**own) == found
    assert bool(found.steps) == bool(recipe.steps)


@pytest.mark.slow
def test_all_rows_have_the_same_folds_and_a_second_call_trains_nothing(
    tmp_path, weights, capsys, monkeypatch
):
    for name in ("POOLINGS", "LOSSES", "HEAD_RATES", "LORA_RATES"):
        monkeypatch.setattr(advise, name, getattr(advise, name)[:1])
    monkeypatch.setattr(advise, "FOLDS", 2)
    given = command(tmp_path, weights, **{"--minutes": 30, "--worth": 1e-6})
    advise.main(given)
    found = table_of(tmp_path)
    assert [*found][:4] == ["raw features", "whitening", "head", "LoRA"]
    page = (tmp_path / "advice" / "advice.md").read_text()
    assert "48 images of 12 classes" in page
    assert page in capsys.readouterr().out
    runs = {
        file: file.stat().st_mtime_ns
        for file in (tmp_path / "advice" / "runs").glob("*/scores.json")
    }
    advise.main(given)
    for file, changed in runs.items():
        assert file.stat().st_mtime_ns == changed
    assert table_of(tmp_path) == found


def test_without_time_only_raw_features_are_scored(tmp_path, weights):
    advise.main(command(tmp_path, weights, **{"--minutes": 1e-6}))
    page = (tmp_path / "advice" / "advice.md").read_text()
    assert "No time was left to try whitening and head" in page
    for name in ("whitening", "head", "LoRA"):
        assert f"| {name} | not tried, no time |" in page
    assert "a third of the folder's" in page and "of 1e-06 minutes" in page
    assert "embedding_size=None" in page


def test_a_folder_with_few_classes_is_refused(tmp_path, weights):
    with pytest.raises(SystemExit, match=r"at least 12 classes.*: 11 classes"):
        advise.main(command(tmp_path, weights, num_classes=11))
