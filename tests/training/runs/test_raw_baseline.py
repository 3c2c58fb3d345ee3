"""Every run is measured against its backbone's own features."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.training.test_train import RECIPE, SPLITS
from training.recipes.learner import build_backbone
from training.runs import raw_baseline
from training.runs.callbacks import BestWeights
from training.runs.raw_baseline import POOLINGS, pooled, raw_scores
from training.runs.verdict import compared, verdict

pytestmark = pytest.mark.usefixtures("cache")


def test_scores_are_those_of_the_pooled_features_and_kept(monkeypatch):
    found = raw_scores(RECIPE, SPLITS)
    keras.utils.set_random_seed(RECIPE.seed)
    maps = build_backbone(RECIPE, (16, 16, 3))(SPLITS.test.images)
    for name, rows in pooled(maps).items():
        scores = gsp.metrics.retrieval_scores(rows, SPLITS.test.labels)
        assert found[name]["map_at_r"] == pytest.approx(scores["map_at_r"])
    best = max(POOLINGS, key=lambda name: found[name]["val_map_at_r"])
    assert found["best"] == best
    # Learned whitening is fitted to the training classes alone.
    train = build_backbone(RECIPE, (16, 16, 3))(SPLITS.train.images)
    white = found["whitened"]
    size = min(RECIPE.embedding_size, len(SPLITS.train) - 1)
    layer = gsp.layers.Whitening(size, shrinkage=white["shrinkage"])
    layer.adapt(pooled(train)[best], SPLITS.train.labels)
    scores = gsp.metrics.retrieval_scores(
        layer(pooled(maps)[best]), SPLITS.test.labels
    )
    assert white["map_at_r"] == pytest.approx(scores["map_at_r"])
    monkeypatch.setattr(raw_baseline, "_scores", None)
    assert raw_scores(RECIPE, SPLITS) == found


def scores_of(kept, gain, steps=900):
    """Scores of a run whose raw features are better than whitened ones."""
    raw = {"map_at_r": 0.768, "val_map_at_r": 0.768}
    white = {"map_at_r": 0.7, "val_map_at_r": 0.71}
    scores = {"raw": {"best": "GeM 3", "GeM 3": raw, "whitened": white}}
    ends = {"difference": gain, "low": gain - 0.01, "high": gain + 0.01}
    scores["gain"] = {"against": "raw features", **ends}
    own = {"kept_step": kept, "steps": steps, "val_map_at_r": 0.716}
    return scores | own | {"map_at_r": 0.705}


@pytest.mark.parametrize(
    "scores, sentence",
    [
        # Emoji: validation .716 at step 0, .690 at step 150.
        (scores_of(0, 0.05), "of step 0 is kept. Stay with the raw features."),
        (scores_of(150, 0.005), "no significant difference: +0.5 [-0.5, +1.5]"),
        (scores_of(150, -0.05), "over the raw features. Stay with the raw fea"),
        (scores_of(150, 0.05), "gained +5.0 [+4.0, +6.0] points of MAP@R over"),
        (scores_of(0, 0.0, steps=0), "Nothing was trained."),
        (scores_of(9, 0.0) | {"gain": None}, "One test class allows no"),
    ],
)
def test_the_verdict_is_about_the_step_that_is_kept(scores, sentence):
    text = verdict(scores)
    assert sentence in text
    assert ("gained" in text) == (sentence.startswith("gained"))
    is_undecided = not scores["steps"] or scores["gain"] is None
    assert ("Stay" in text) != ("gained" in text or is_undecided)
    assert "raw 0.768, whitened 0.710, this run 0.716" in text


def test_a_run_is_compared_with_the_better_of_raw_and_whitened():
    classes, run = np.repeat(np.arange(6), 5), np.full(30, 0.5)
    raw = {"best": "GeM 3", "GeM 3": {"val_map_at_r": 0.4}}
    raw["queries"] = {"raw": run - 0.1, "whitened": run + 0.1}
    for white, against, gain in (
        (0.3, "raw features", 0.1),
        (0.5, "whitened features", -0.1),
    ):
        found = compared(
            run, raw | {"whitened": {"val_map_at_r": white}}, classes
        )
        assert found["against"] == against
        assert found["difference"] == pytest.approx(gain)
    one_class = {**raw, "whitened": {"val_map_at_r": 0.5}}
    assert compared(run, one_class, 0 * classes) is None


def test_the_best_weights_may_be_those_before_the_first_step():
    images = np.random.default_rng(0).normal(size=(12, 4))
    labels = np.repeat(np.arange(4), 3)
    encoder = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    learner = gsp.models.MetricLearner(encoder)
    learner.compile("sgd", loss=gsp.losses.ContrastiveLoss())
    scores = gsp.callbacks.RetrievalEvaluation((images, labels))
    before = encoder.get_weights()
    untrained = encoder.predict(images, verbose=0)
    worse = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(val_map_at_r=-1.0)
    )
    best = BestWeights(scores, patience=9)
    learner.fit(
        images, labels, epochs=2, verbose=0, callbacks=[scores, worse, best]
    )
    assert best.best == pytest.approx(
        gsp.metrics.retrieval_scores(untrained, labels)["map_at_r"]
    )
    for weight, old in zip(encoder.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
