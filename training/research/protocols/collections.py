"""Scores of ensembles: one model of every fold, in all combinations."""

from itertools import product
from typing import Any

import numpy as np

from training.datasets.image_set import RetrievalSplits
from training.research.results.markdown import mean_and_deviation
from training.runs.kept_embeddings import score_test_embeddings


def collection_scores(embeddings: Any, splits: RetrievalSplits) -> dict:
    """Scores every collection of one model per fold.

    A model is scored on its own ("average": the mean of the collection's
    models) and the collection is scored together ("concatenated": the
    embeddings side by side, which for unit vectors ranks by the mean of
    their similarities).

    Args:
        embeddings: For each fold, for each of its models: side -> array, as
            `load_test_embeddings` gives.
        splits: The labels.

    Returns:
        Dict with `num_collections`, and for `average` and `concatenated`
        their `embedding_size` and the `mean` and `std` of every measure over
        the collections; `std` is None for a single one.
    """
    single = [
        [score_test_embeddings(found, splits) for found in models]
        for models in embeddings
    ]
    means, joint = [], []
    for chosen in product(*(range(len(models)) for models in embeddings)):
        scores = [models[i] for models, i in zip(single, chosen, strict=True)]
        means.append(
            {name: np.mean([s[name] for s in scores]) for name in scores[0]}
        )
        models = [
            models[i] for models, i in zip(embeddings, chosen, strict=True)
        ]
        joint.append(score_test_embeddings(concatenated(models), splits))
    size = next(iter(embeddings[0][0].values())).shape[1]
    return {
        "num_collections": len(joint),
        "average": summary(means, size),
        "concatenated": summary(joint, size * len(embeddings)),
    }


def concatenated(models: Any) -> dict[str, np.ndarray]:
    """Embeddings of several models side by side, for every side."""
    return {
        side: np.concatenate([found[side] for found in models], axis=1)
        for side in models[0]
    }


def summary(scores: Any, embedding_size: int) -> dict:
    """Mean and sample standard deviation of every measure.

    Args:
        scores: List of dicts, measure -> rate.
        embedding_size: Width of what was scored.
    """
    return {"embedding_size": int(embedding_size)} | {
        name: mean_and_deviation(score[name] for score in scores)
        for name in scores[0]
    }
