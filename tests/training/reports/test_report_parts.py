"""Parts of a report: methods, scores, verdict, queries, classes."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_gsp.data import ImageSet
from training.reports import methods as grouping
from training.reports.methods import Score
from training.reports.queries import chosen_queries, class_rows
from training.reports.searched import ScoredImages, Searched


def searched(neighbors, scores, labels=(0, 0, 1, 1, 2, 2)):
    labels = np.array(labels)
    images = ImageSet(
        labels, tuple("abc"), images=np.zeros((6, 4, 4, 3), "uint8")
    )
    return Searched(
        images=ScoredImages(None, None, images, 6, []),
        encoder=None,
        embeddings=None,
        neighbors=np.array(neighbors),
        distances=np.tile([[0.1, 0.2]], (6, 1)) * np.arange(1, 7)[:, None],
        by_query=dict.fromkeys(grouping.MEASURES, np.array(scores)),
    )


ONE = searched(
    [[1, 2], [0, 3], [3, 0], [2, 4], [5, 2], [2, 3]],
    [0.5, 0.5, 0.4, 0.6, 0.5, 0.0],
)


def test_a_class_has_its_mean_and_most_confused_class():
    rows = class_rows([ONE])
    assert [row[0] for row in rows] == ["c", "a", "b"]
    assert [row[2] for row in rows] == ["25.0", "50.0", "50.0"]
    assert rows[0][-1] == "b (75%)"


def test_queries_are_of_different_classes_and_none_is_shown_twice():
    assert list(chosen_queries([ONE]).values()) == [[3, 0, 4], [5, 2]]
    # Of equal successes, the one that gains most over the baseline.
    base = searched(ONE.neighbors, [0.5, 0.4, 0.4, 0.6, 0.5, 0.0])
    assert chosen_queries([base, ONE])["Right first"] == [3, 1, 4]


def run(name, seed=0, scores=None, **recipe):
    return SimpleNamespace(
        name=name,
        settings={"recipe": recipe | {"seed": seed}},
        settings_but_seed=str(recipe),
        scores={"map_at_r": 0.25} | (scores or {}),
    )


def test_runs_of_several_seeds_are_one_method():
    runs = [run("a-12", 1), run("a-11", 0, scores={"map_at_r": 0.35})]
    methods = grouping.methods_of(runs)
    assert [method.name for method in methods] == ["a"]
    (row,) = grouping.score_rows(methods, {}, [])
    assert row.scores == {
        "map_at_r": Score(pytest.approx(0.3)),
        "precision_at_1": Score(None),
    }


def test_differences_need_the_same_queries():
    better = searched(ONE.neighbors, ONE.by_query["map_at_r"] + 0.1)
    methods = grouping.methods_of([run("a"), run("b", pooling="gsp")])
    notes = []
    rows = grouping.score_rows(methods, {"a": ONE, "b": better}, notes)
    assert rows[0].base is None and rows[1].base.name == "a"
    for gain in rows[1].gains.values():
        assert gain.mean == pytest.approx(0.1)
        assert gain.low <= 0.1 + 1e-6 and gain.high >= 0.1 - 1e-6
    other = searched(ONE.neighbors, [0.5] * 6, labels=(0, 1, 1, 1, 2, 2))
    rows = grouping.score_rows(methods, {"a": ONE, "b": other}, notes)
    assert rows[1].gains == {} and "different images" in notes[0]


def test_the_verdict_is_that_of_the_best_run():
    def verdict(*runs, **searches):
        methods = grouping.methods_of(list(runs))
        return grouping.verdict(grouping.score_rows(methods, searches, []))

    assert verdict(run("a", steps=5)) == [
        "a reaches a MAP@R of 25.0 % on classes that were not trained with; "
        "the raw features were not scored."
    ]
    written = {"verdict": "raw features .3, this run .25: try LoRA"}
    best = verdict(run("a", scores=written), run("b", loss="ms"))
    assert best[0] == "Raw features .3, a .25: try LoRA."
    # Also where the best one is what the others are compared with.
    worse = searched(ONE.neighbors, ONE.by_query["map_at_r"] - 0.1)
    runs = (
        run("a", scores=written),
        run("b", pooling="gsp", scores={"map_at_r": 0.15} | written),
    )
    first, second = verdict(*runs, a=ONE, b=worse)
    assert first == best[0] and "by -10" in second
    assert verdict(run("a", scores={"map_at_r": None})) == [
        "There are no test scores yet."
    ]
