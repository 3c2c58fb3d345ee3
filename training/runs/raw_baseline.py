"""What doing nothing scores: the backbone's own features, pooled."""

import hashlib
import json
from typing import Any

import keras
import numpy as np

from keras_gsp._labeled_batches import batches_of
from keras_gsp._processes import num_processes, predictor
from keras_gsp.data.archives import cache_folder
from keras_gsp.layers import GeneralizedMeanPooling, Whitening
from training.datasets.image_set import RetrievalSplits
from training.recipes.batches import evaluation_batches, image_shape
from training.recipes.features import fingerprint
from training.recipes.learner import build_backbone, fitted_images
from training.recipes.recipe import Recipe
from training.runs.run_directory import write_json
from training.runs.scoring import side_scores

# Powers of the mean over positions.
POOLINGS = {"average": 1.0, "GeM 3": 3.0, "GeM 5": 5.0, "maximum": np.inf}
# Of learned whitening (docs/results/whitening.md); the last one is PCA, for too
# few classes to learn from.
SHRINKAGES = 0.1, 0.3, 0.8, 1.0


def raw_scores(recipe: Recipe, splits: RetrievalSplits) -> dict[str, Any]:
    """Scores the untrained backbone's pooled, normalized features.

    Returns `map_at_r`, `precision_at_1` and `val_map_at_r` for each of
    `POOLINGS`, as `best` the name of the one that validates best, and the same
    for its learned whitening, `whitened`, fitted to training images; and as
    `queries` the MAP@R of each test image, of the best (`raw`) and `whitened`.
    Kept in the cache folder.
    """
    sides = {"train": fitted_images(splits.train), **splits.scored()}
    sides["validation"] = splits.validation
    keras.utils.set_random_seed(recipe.seed)
    network = build_backbone(recipe, image_shape(recipe, splits.test))
    digest = hashlib.sha256(f"2 {recipe.embedding_size}".encode())
    for images in sides.values():
        digest.update(fingerprint(recipe, network, images).encode())
        digest.update(images.labels.tobytes())
    file = cache_folder() / "raw" / f"{digest.hexdigest()[:24]}.json"
    # Several processes must embed together, or not at all.
    if num_processes() == 1 and file.exists():
        return json.loads(file.read_text())
    rows = pooled_sides(recipe, network, sides)
    found: dict[str, Any] = {
        name: _scores(rows[name], sides) for name in POOLINGS
    }
    best = max(POOLINGS, key=lambda name: found[name]["val_map_at_r"])
    found["whitened"] = _whitened(rows[best], sides, recipe)
    queries = {name: scores.pop("queries") for name, scores in found.items()}
    found["best"] = best
    found["queries"] = {"raw": queries[best], "whitened": queries["whitened"]}
    if num_processes() == 1:
        write_json(file, found)
    return found


def pooling_of(name: str) -> keras.Layer:
    """Returns the layer of one of `POOLINGS`."""
    if name == "average":
        return keras.layers.GlobalAveragePooling2D()
    if name == "maximum":
        return keras.layers.GlobalMaxPooling2D()
    return GeneralizedMeanPooling(POOLINGS[name])


def pooled(maps: Any) -> dict[str, np.ndarray]:
    """Pools feature maps (batch, rows, columns, channels), normalized."""
    maps = np.asarray(maps, "float32")
    pools = {name: pooling_of(name)(maps) for name in POOLINGS}
    return {
        name: keras.utils.normalize(keras.ops.convert_to_numpy(rows))
        for name, rows in pools.items()
    }


def whitenings(recipe: Recipe, rows: dict[str, Any], labels: Any) -> Any:
    """Yields learned whitening of each of `SHRINKAGES`, and whitened rows.

    `rows` has the features of each side, `labels` those of `train`. None where
    features are equal within each class.
    """
    train = rows["train"]
    size = min(recipe.embedding_size, train.shape[1], len(train) - 1)
    for shrinkage in SHRINKAGES:
        layer = Whitening(size, shrinkage=shrinkage)
        try:
            layer.adapt(train, labels)
        except ValueError:
            return
        white = {
            k: keras.ops.convert_to_numpy(layer(x)) for k, x in rows.items()
        }
        yield layer, white


def _whitened(rows, sides, recipe):
    """Scores of learned whitening, its shrinkage the best on validation."""
    found = [
        _scores(white, sides) | {"shrinkage": layer.shrinkage}
        for layer, white in whitenings(recipe, rows, sides["train"].labels)
    ]
    plain = _scores(rows, sides) | {"shrinkage": 1.0}
    return max(found or [plain], key=lambda scores: scores["val_map_at_r"])


def _scores(rows, sides):
    """Scores of embeddings on test and validation classes."""
    from keras_gsp.metrics import retrieval_scores

    tested = side_scores(rows, sides)
    validated = retrieval_scores(rows["validation"], sides["validation"].labels)
    return {
        "queries": np.asarray(tested["per_query"]["map_at_r"]).tolist(),
        "map_at_r": float(tested["map_at_r"]),
        "precision_at_1": float(tested["precision_at_1"]),
        "val_map_at_r": float(validated["map_at_r"]),
    }


def pooled_sides(
    recipe: Recipe, network: Any, sides: dict[str, Any]
) -> dict[str, dict[str, np.ndarray]]:
    """Returns the pooled features of all images: pooling -> side -> rows."""
    found: dict[str, dict] = {name: {} for name in POOLINGS}
    predict = predictor(network)
    for side, images in sides.items():
        batches = batches_of(evaluation_batches(recipe, images))
        parts = [pooled(predict(pixels)) for pixels, _ in batches]
        for name in POOLINGS:
            rows = np.concatenate([part[name] for part in parts])
            found[name][side] = rows
    return found
