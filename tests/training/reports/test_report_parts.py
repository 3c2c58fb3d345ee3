"""Parts of a report: scores, gains, verdict, queries."""

import dataclasses

import numpy as np
import pytest

from keras_gsp.data import ImageSet
from training import report
from training.report import ReadRun
from training.reports.searched import Searched, chosen_queries

IMAGES = ImageSet(
    [0, 0, 1, 1, 2, 2], tuple("abc"), images=np.zeros((6, 4, 4, 3), "uint8")
)


def searched(scores, images=IMAGES):
    return Searched(
        recipe=None,
        images=images,
        encoder=None,
        neighbors=np.array([[1, 2], [0, 3], [3, 0], [2, 4], [5, 2], [2, 3]]),
        distances=np.ones((6, 2)),
        scores=np.array(scores),
    )


ONE = searched([0.5, 0.5, 0.4, 0.6, 0.5, 0.0])
BETTER = searched(ONE.scores + 0.1)


def run(name, search=None, **scores):
    scores = {"map_at_r": 0.25} | scores
    return ReadRun(name, None, {}, scores=scores, searched=search)


def test_queries_are_of_different_classes_and_none_is_shown_twice():
    assert list(chosen_queries([ONE]).values()) == [[3, 0, 4], [5, 2]]
    assert chosen_queries([searched([1.0] * 6)])["Wrong first"] == []
    # Of equal successes, the one that gains most over the baseline.
    base = searched([0.5, 0.4, 0.4, 0.6, 0.5, 0.0])
    assert chosen_queries([base, ONE])["Right first"] == [3, 1, 4]


def test_differences_need_the_same_queries():
    first, better = run("a", ONE), run("b", BETTER)
    other = run("c", searched([0.5] * 6, dataclasses.replace(IMAGES)))
    report.compare([first, better, other])
    assert first.gain is None and other.gain is None
    assert better.gain["difference"] == pytest.approx(0.1)
    assert "different images than a" in other.notes[0]


def test_the_verdict_is_that_of_the_best_run():
    assert report.verdict([run("a")]) == [
        "a reaches a MAP@R of 25.0 % on classes that were not trained with; "
        "the raw features were not scored."
    ]
    written = {"verdict": "raw features .3, this run .25: try LoRA"}
    best = "Raw features .3, a .25: try LoRA."
    worse = run("b", map_at_r=0.15, **written)
    assert report.verdict([run("a", **written), worse]) == [best]
    # Also where the best one is what the others are compared with.
    runs = [run("a", BETTER, **written)]
    runs.append(run("b", ONE, map_at_r=0.15, **written))
    report.compare(runs)
    first, second = report.verdict(runs)
    assert first == best and "b differs from a by -10.0 [" in second
    assert report.verdict([run("a", map_at_r=None)]) == [
        "There are no test scores yet."
    ]
