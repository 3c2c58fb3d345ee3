"""Every run is measured against its backbone's own features."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.training.test_train import RECIPE, SPLITS
from training.recipes.backbone import build_backbone
from training.runs import raw_baseline
from training.runs.callbacks import BestWeights
from training.runs.raw_baseline import POOLINGS, pooled, raw_scores, verdict

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


def test_the_verdict_says_what_to_try():
    for now, settings, words in [
        (0.5, {}, "GeM 3), whitened 0.420, this run 0.500: training gained 8"),
        (0.41, {}, "this run 0.410: training did not help"),
        (0.3, {}, "did not help. Try another loss"),
        (0.3, {"steps": 0}, "0.300; nothing was trained."),
        (0.4, {"dataset": "folder", "data_dir": "a b"}, "advise --data-dir 'a"),
    ]:
        scores = {"map_at_r": now, "raw": {"best": "GeM 3"}}
        scores["raw"]["GeM 3"] = {"map_at_r": 0.4}
        scores["raw"]["whitened"] = {"map_at_r": 0.42}
        assert words in verdict(scores, RECIPE.with_(**settings))


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
