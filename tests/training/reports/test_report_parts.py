"""Parts of a report: maps, classes, scores, curves, pictures."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_gsp.data import ImageSet
from training.pictures.encoding import decoded_image, encoded_image
from training.pictures.palette import picture
from training.report import embedding_map
from training.reports import failures, score_table
from training.reports.searched import Searched


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("shape", [(5, 1), (2, 4), (3, 2)])
def test_pca_of_few_images_or_axes_is_finite(shape):
    embeddings = np.random.default_rng(0).normal(size=shape)
    found = embedding_map(embeddings, "pca")
    places = np.array([found["x"], found["y"]])
    assert places.shape == (2, shape[0]) and np.isfinite(places).all()
    assert np.abs(places).max() == pytest.approx(1)
    assert found["words"].endswith("% of the variance")


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


def test_confusion_counts_the_neighbors_of_each_class():
    expected = [[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0.75, 0.25]]
    np.testing.assert_allclose(failures.confusion(ONE), expected)


def test_a_class_has_its_mean_and_most_confused_class():
    rows = failures.class_rows([ONE])
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    scores = [row["scores"][0]["map_at_r"] for row in rows]
    assert scores == pytest.approx([0.5, 0.5, 0.25])
    assert rows[2]["mistaken"] == {"name": "b", "share": 0.75}


def test_lists_have_one_query_of_each_class():
    lists = {
        one["title"]: one["queries"]
        for one in failures.query_lists({"x": ONE, "y": ONE})
    }
    assert lists["Worst of x"] == [5, 2, 0]
    assert lists["Best of x"] == [3, 0, 4]
    assert set(lists) == {
        *("Worst of x", "Best of x", "Worst of y", "Best of y"),
        *("y ahead of x", "x ahead of y"),
    }


def run(name, seed=0, values=(0.2, 0.4, 0.3), **recipe):
    history = [
        {"step": i, "val_map_at_r": value, "val_precision_at_1": 2 * value}
        for i, value in enumerate(values)
    ]
    settings = {"recipe": recipe | {"seed": seed}}
    return SimpleNamespace(
        name=name,
        settings=settings,
        settings_but_seed=str(recipe),
        history=history,
        scores={"map_at_r": 0.25, "map_at_r_4": 0.2, "map_at_r_teacher": 0.3},
    )


def test_the_validation_score_is_the_maximum_of_the_curve():
    runs = [run("a", 1), run("b", 0, [0.1, 0.2])]
    methods = score_table.methods_of(runs)
    assert [method.name for method in methods] == ["b and 1 more"]
    test, *cut, validation = score_table.score_rows(methods, {})
    assert (test["side"], validation["side"]) == ("test", "validation")
    assert [row["side"] for row in cut] == ["test, first 4", "test, teacher"]
    assert test["cells"][0] == {"mean": 0.25, "low": None, "high": None}
    means = [cell["mean"] for cell in validation["cells"]]
    assert means == [pytest.approx(0.3), pytest.approx(0.6), None]


def test_differences_need_the_same_queries():
    better = searched(ONE.neighbors, ONE.by_query["map_at_r"] + 0.1)
    methods = score_table.methods_of([run("a"), run("b", pooling="gsp")])
    notes = []
    rows = score_table.difference_rows(methods, {"a": ONE, "b": better}, notes)
    assert [row["measure"] for row in rows] == ["MAP@R", "P@1", "P@R"]
    for row in rows:
        assert (row["method"], row["against"]) == ("b", "a")
        assert row["mean"] == pytest.approx(0.1)
        assert row["low"] <= 0.1 + 1e-6 and row["high"] >= 0.1 - 1e-6
    other = searched(ONE.neighbors, [0.5] * 6, labels=(0, 1, 1, 1, 2, 2))
    assert not score_table.difference_rows(
        methods, {"a": ONE, "b": other}, notes
    )
    assert "different images" in notes[0]


def test_a_failed_drawing_writes_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with picture(tmp_path / "x.png"):
            raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_an_image_is_cut_to_its_embedded_square():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 12, 3), "uint8")
    contents = encoded_image(pixels, "PNG")
    np.testing.assert_array_equal(decoded_image(contents), pixels)
    square = decoded_image(contents, 0.5)
    np.testing.assert_array_equal(square, pixels[7:13, 3:9])
    assert (decoded_image(b"no image") == 200).all()
    small = decoded_image(encoded_image(pixels, side=10))
    assert small.shape == (10, 6, 3)
