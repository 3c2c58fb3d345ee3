"""Parts of a report: maps, classes, scores, curves, pictures."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_gsp.data import ImageSet
from training.pictures.encoding import decoded_image, encoded_image
from training.report import embedding_map
from training.reports import failures, score_table
from training.reports.run_reading import names_of, settings_rows
from training.reports.searched import Searched
from training.reports.verdict import verdict

NAMES = [
    (["runs/a", "old/b"], ["a", "b"]),
    (["runs/a/fold0", "runs/b/fold0"], ["a", "b"]),
    (["runs/a/0", "runs/a/1", "runs/b/0"], ["a/0", "a/1", "b/0"]),
    (["runs/a", "runs/a/a"], ["a", "a/a"]),
    ([], []),
]


@pytest.mark.parametrize("paths, names", NAMES)
def test_runs_are_named_by_what_differs_in_their_paths(paths, names):
    assert names_of([tuple(path.split("/")) for path in paths]) == names


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_few_images_or_axes_are_laid_out_by_pca():
    for shape in ((5, 1), (2, 4), (3, 2)):
        embeddings = np.random.default_rng(0).normal(size=shape)
        found = embedding_map(embeddings, "tsne")
        assert found["words"].startswith("PCA")
        places = np.array([found["x"], found["y"]])
        assert places.shape == (2, shape[0]) and np.isfinite(places).all()
        assert np.abs(places).max() == pytest.approx(1)


def searched(neighbors, scores, labels=(0, 0, 1, 1, 2, 2)):
    labels = np.array(labels)
    names = tuple("abc")
    images = ImageSet(labels, names, images=np.zeros((6, 4, 4, 3), "uint8"))
    return Searched(
        images=SimpleNamespace(
            images=images, labels=labels, num_queries=6, names=list("uvwxyz")
        ),
        encoder=None,
        embeddings=None,
        neighbors=np.array(neighbors),
        distances=np.tile([[0.1, 0.2]], (6, 1)) * np.arange(1, 7)[:, None],
        by_query=dict.fromkeys(score_table.MEASURES, np.array(scores)),
    )


ONE = searched(
    [[1, 2], [0, 3], [3, 0], [2, 4], [5, 2], [2, 3]],
    [0.5, 0.5, 0.4, 0.6, 0.5, 0.0],
)


def test_a_class_has_its_mean_and_most_confused_class():
    rows = failures.class_rows([ONE])
    assert [row["name"] for row in rows] == ["c", "a", "b"]
    scores = [row["scores"][0] for row in rows]
    assert scores == pytest.approx([0.25, 0.5, 0.5])
    assert rows[0]["mistaken"] == {"name": "b", "share": 0.75}


def test_queries_are_of_different_classes_and_none_is_shown_twice():
    chosen = failures.chosen_queries([ONE])
    assert chosen == {"Found well": [3, 0, 4], "Found badly": [5, 2]}
    # Of equal successes, the one that gains most over the baseline.
    base = searched(ONE.neighbors, [0.5, 0.4, 0.4, 0.6, 0.5, 0.0])
    chosen = failures.chosen_queries([base, ONE])
    assert chosen["Found well"] == [3, 1, 4]


def run(name, seed=0, scores=None, **recipe):
    return SimpleNamespace(
        name=name,
        settings={"recipe": recipe | {"seed": seed}},
        settings_but_seed=str(recipe),
        scores={"map_at_r": 0.25} | (scores or {}),
    )


def test_runs_of_several_seeds_are_one_method():
    runs = [run("a-12", 1), run("a-11", 0, scores={"map_at_r": 0.35})]
    methods = score_table.methods_of(runs)
    assert [method.name for method in methods] == ["a"]
    (row,) = score_table.score_rows(methods, {}, [])
    assert row["runs"] == 2 and row["scores"]["precision_at_1"]["mean"] is None
    expected = {"mean": 0.3, "low": None, "high": None}
    assert row["scores"]["map_at_r"] == expected


def test_a_run_is_compared_with_its_own_network_with_average_pooling():
    facts = {
        "untrained": {"steps": 0, "frozen": "all"},
        "frozen-gap": {"steps": 8, "frozen": "all"},
        "tuned-gap": {"steps": 8, "frozen": "none"},
        "frozen-gsp": {"steps": 8, "frozen": "all", "pooling": "gsp"},
        "tuned-gsp": {"steps": 8, "frozen": "none", "pooling": "gsp"},
        "other-loss": {"steps": 8, "loss": "ms", "pooling": "gsp"},
    }
    methods = score_table.methods_of([run(n, **r) for n, r in facts.items()])
    found = score_table.baselines(methods)
    names = [one and one.name for one in found]
    assert names == [None, None, None, "frozen-gap", "tuned-gap", None]
    found = score_table.baselines(methods[-2:])
    assert found == [None, methods[-2]]


def test_differences_need_the_same_queries():
    better = searched(ONE.neighbors, ONE.by_query["map_at_r"] + 0.1)
    methods = score_table.methods_of([run("a"), run("b", pooling="gsp")])
    notes = []
    rows = score_table.score_rows(methods, {"a": ONE, "b": better}, notes)
    assert [row["is_baseline"] for row in rows] == [True, False]
    assert rows[1]["against"] == "a"
    assert rows[1]["base"] == pytest.approx(0.25 / 0.6, abs=1e-6)
    assert set(rows[1]["gains"]) == {*score_table.MEASURES}
    for gain in rows[1]["gains"].values():
        assert gain["mean"] == pytest.approx(0.1)
        assert gain["low"] <= 0.1 + 1e-6 and gain["high"] >= 0.1 - 1e-6
    other = searched(ONE.neighbors, [0.5] * 6, labels=(0, 1, 1, 1, 2, 2))
    rows = score_table.score_rows(methods, {"a": ONE, "b": other}, notes)
    assert rows[1]["gains"] == {} and "different images" in notes[0]


def test_the_verdict_is_that_of_the_best_run():
    def said(*runs, **answers):
        methods = score_table.methods_of(list(runs))
        rows = score_table.score_rows(methods, answers, [])
        return verdict(methods, rows)

    assert said(run("a", steps=5)) == [
        "a reaches a MAP@R of 25.0 % on classes that were not trained with; "
        "the raw features were not scored."
    ]
    own = {"verdict": "raw features .3, this run .25: try LoRA"}
    found = said(run("a", scores=own), run("b", loss="ms", scores=own))
    assert found[0] == "Raw features .3, a .25: try LoRA."
    # Also where the best one is what the others are compared with.
    worse = searched(ONE.neighbors, ONE.by_query["map_at_r"] - 0.1)
    runs = (
        run("a", scores={"map_at_r": 0.25} | own),
        run("b", pooling="gsp", scores={"map_at_r": 0.15} | own),
    )
    first, second = said(*runs, a=ONE, b=worse)
    assert first == found[0] and " b makes a difference of -10" in second
    assert said(run("a", scores={"map_at_r": None})) == [
        "There are no test scores yet."
    ]


def test_settings_are_words():
    one = {"loss_arguments": {"margin": 0.5}, "use_gpu": True, "size": [8, 4]}
    other = one | {"loss_arguments": {"margin": 0.4}, "seed": 3}
    assert settings_rows([one | {"seed": 1}, other]) == [
        ("loss arguments", ["margin 0.5", "margin 0.4"]),
        ("use gpu", ["yes"]),
        ("size", ["8, 4"]),
    ]


def test_an_image_is_cut_to_its_embedded_square():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 12, 3), "uint8")
    contents = encoded_image(pixels, "PNG")
    np.testing.assert_array_equal(decoded_image(contents), pixels)
    square = decoded_image(contents, 0.5)
    np.testing.assert_array_equal(square, pixels[7:13, 3:9])
    assert (decoded_image(b"no image") == 200).all()
    small = decoded_image(encoded_image(pixels, side=10))
    assert small.shape == (10, 6, 3)
