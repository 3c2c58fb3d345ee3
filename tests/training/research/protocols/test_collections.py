"""Ensembles are scored in all combinations of one model per fold."""

from itertools import product

import numpy as np
import pytest

import keras_gsp as gsp
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.research.protocols.collections import collection_scores, summary
from training.runs.kept_embeddings import score_test_embeddings

LABELS = np.repeat(np.arange(4), 3)


def image_set(labels=LABELS, name="test"):
    names = tuple(f"{name}{i}" for i in range(labels.max() + 1))
    return ImageSet(labels, names, paths=tuple(map(str, range(len(labels)))))


def random_models(num_folds, repeats, size=5):
    rng = np.random.default_rng(0)
    found = rng.normal(size=(num_folds, repeats, len(LABELS), size))
    found /= np.linalg.norm(found, axis=-1, keepdims=True)
    return [[{"test": one} for one in models] for models in found]


def test_all_collections_are_scored():
    models = random_models(4, 2)
    splits = RetrievalSplits("x", image_set(name="train"), image_set())
    scores = collection_scores(models, splits)
    averages, joints = [], []
    for chosen in product(range(2), repeat=4):
        arrays = [models[fold][i]["test"] for fold, i in enumerate(chosen)]
        single = [
            gsp.metrics.retrieval_scores(one, LABELS)["map_at_r"]
            for one in arrays
        ]
        averages.append(np.mean(single))
        joint = np.concatenate(arrays, axis=1)
        joints.append(gsp.metrics.retrieval_scores(joint, LABELS)["map_at_r"])
    assert scores["num_collections"] == 16
    for part, values in (("average", averages), ("concatenated", joints)):
        found = scores[part]["map_at_r"]
        assert found["mean"] == pytest.approx(np.mean(values))
        assert found["std"] == pytest.approx(np.std(values, ddof=1))
    assert scores["average"]["embedding_size"] == 5
    assert scores["concatenated"]["embedding_size"] == 20


def test_queries_search_the_gallery():
    embeddings = {"query": np.eye(3), "gallery": np.eye(3)[[2, 0, 1]]}
    search = {
        "query": image_set(np.array([0, 1, 2])),
        "gallery": image_set(np.array([2, 0, 1])),
    }
    splits = RetrievalSplits(
        "x", image_set(name="train"), image_set(), **search
    )
    assert score_test_embeddings(embeddings, splits)["precision_at_1"] == 1


def test_one_collection_has_no_spread():
    found = summary([{"map_at_r": 0.5}], 7)
    assert found == {
        "embedding_size": 7,
        "map_at_r": {"mean": 0.5, "std": None, "values": [0.5]},
    }
