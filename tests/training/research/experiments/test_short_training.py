"""Short trainings start, and are regularized, as their recipes say."""

from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from keras_gsp.models.encoder import features_before
from keras_gsp.ops.normalization import unit_ball
from training.datasets import glyphs
from training.datasets.image_set import ImageSet
from training.recipes.glyphs import GSP, XML, ZSR
from training.research.experiments import (
    collage,
    dominant_prototypes,
    few_prototypes,
    solver_rounds,
    zero_shot_prediction,
)
from training.research.experiments.distracted import (
    DistractedSettings,
    short_recipe,
)
from training.research.experiments.regularizer_share import HEADINGS, over_seeds
from training.research.experiments.short_training import (
    trained,
    trained_encoder,
    untrained_encoder,
)
from training.research.results.markdown import mean_and_deviation

SMALL = {
    "embedding_size": 8,
    "num_prototypes": 4,
    "classes_per_batch": 4,
    "samples_per_class": 2,
    "steps": 2,
    "steps_per_evaluation": 2,
}


@pytest.fixture(scope="module")
def images():
    return glyphs.load(
        train_classes=4,
        train_samples=8,
        validation_classes=1,
        test_classes=1,
        test_samples=2,
    ).train


def prototypes_of(encoder):
    return np.array(encoder.get_layer("pooling").prototypes)


def test_training_starts_from_the_prototypes_of_the_recipe(images):
    recipe = replace(ZSR, **SMALL)
    random, data = (
        untrained_encoder(replace(recipe, prototype_start=start), images)
        for start in ("random", "data")
    )
    assert not np.allclose(prototypes_of(random), prototypes_of(data))
    # Batch normalization has seen the images too.
    moved = [
        not np.allclose(one, other)
        for one, other in zip(
            random.non_trainable_variables,
            keras.models.clone_model(random).non_trainable_variables,
            strict=True,
        )
    ]
    assert all(moved)
    still = replace(recipe, learning_rate=1e-12)
    np.testing.assert_allclose(
        prototypes_of(trained_encoder(still, images)),
        prototypes_of(data),
        atol=1e-6,
    )


def test_every_solver_starts_from_features_of_the_images():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(16, 3, 3, 8)).astype("float16")
    labels = np.repeat(np.arange(4), 4)
    data = ImageSet(labels, tuple("abcd"), images=features)
    settings = solver_rounds.Settings().small()
    makers = solver_rounds.contenders(settings)
    del makers[solver_rounds.AVERAGE, 0]
    for make in makers.values():
        encoder, _ = solver_rounds.trained(settings, data, make, seed=0)
        seen = features_before(encoder, encoder.get_layer("pooling"))(features)
        seen = np.reshape(unit_ball(seen), (-1, seen.shape[-1]))
        started = prototypes_of(encoder)
        distances = np.linalg.norm(started[:, None] - seen, axis=-1)
        # Two steps move a weight by no more than twice the learning rate.
        assert distances.min(axis=1).max() < 0.05


@pytest.mark.parametrize(
    ("options", "weight"),
    [
        ({}, 0.1),
        ({"data_dir": Path("cifar.zip")}, 0.5),
        ({"regularizer_weight": 0.3}, 0.3),
        ({"data_dir": Path("cifar.zip"), "regularizer_weight": 0.0}, 0.0),
    ],
)
def test_the_zero_shot_weight_is_the_papers_unless_set(options, weight, images):
    settings = DistractedSettings(**options)
    recipe = short_recipe(ZSR, settings, images, 0)
    assert recipe.regularizer_weight == weight
    assert recipe.log_regularizer_share
    other = short_recipe(XML, settings, images, 0)
    assert other.regularizer_weight is None and other.log_regularizer_share
    assert not short_recipe(GSP, settings, images, 0).log_regularizer_share
    few = few_prototypes.FewPrototypesSettings(**options)
    found = [
        few_prototypes._recipe(few, method, images, 0).regularizer_weight
        for method in ("GSP", "GSP+ZSR", "GSP+XML")
    ]
    assert found == [0.0, weight, None]


def test_a_weight_outside_the_range_is_refused(images):
    settings = DistractedSettings(regularizer_weight=1.5)
    with pytest.raises(ValueError, match=r"regularizer_weight.*1\.5"):
        short_recipe(ZSR, settings, images, 0)


def test_the_share_of_the_gradient_is_noted(images):
    recipe = replace(ZSR, **SMALL, regularizer_weight=0.5)
    assert trained(recipe, images)[1] == {}
    note = trained(replace(recipe, log_regularizer_share=True), images)[1]
    assert note["weight"] == 0.5
    assert 0.0 < note["share"] < 1.0


def score(value):
    return mean_and_deviation([value, value + 0.1])


@pytest.mark.parametrize("module", [collage, zero_shot_prediction])
def test_tables_show_the_share_where_a_record_has_it(module):
    found = {name: score(0.5) for name in module.MEASURES}
    plain = module.table({"scores": {"GSP": found, "GSP+ZSR": found}})
    assert HEADINGS[1] not in plain
    assert all(line.count("|") == 2 + len(found) for line in plain.split("\n"))
    notes = [{"weight": 0.5, "share": share} for share in (0.0, 0.002)]
    scores = {"GSP": found, "GSP+ZSR": found | over_seeds(notes)}
    *_, without, with_it = module.table({"scores": scores}).split("\n")
    assert without.endswith("| - | - |")
    assert with_it.endswith("| 0.5 | 0.0010 ± 0.0014 |")


def test_the_table_of_prototypes_has_lines_of_the_share():
    row = {name: score(0.5) for name in dominant_prototypes.MEASURES}
    rows = [{"method": "untrained"} | row, {"method": "GSP+ZSR"} | row]
    plain = dominant_prototypes.table({"rows": rows})
    notes = [{"weight": 0.1, "share": 0.25}]
    rows[1] |= over_seeds(notes)
    lines = dominant_prototypes.table({"rows": rows}).split("\n")
    assert lines[:-2] == plain.split("\n")
    assert lines[-2:] == [
        f"| {HEADINGS[0]} | - | 0.1 |",
        f"| {HEADINGS[1]} | - | 0.2500 |",
    ]
