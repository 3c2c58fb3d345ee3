"""What doing nothing scores: the backbone's own features, pooled.

Every run is measured against it: a trained head may be worse.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_gsp.data.archives import cache_folder
from keras_gsp.embeddings.processes import num_processes, predictor
from training.datasets.image_set import RetrievalSplits
from training.recipes.backbone import build_backbone
from training.recipes.batches import evaluation_batches, image_shape
from training.recipes.features import fingerprint
from training.recipes.recipe import Recipe
from training.runs.run_directory import write_json

# Powers of the mean over positions.
POOLINGS = {"average": 1.0, "GeM 3": 3.0, "GeM 5": 5.0, "maximum": np.inf}
SIDES = ("validation", "test", "query", "gallery")
KEPT = ("map_at_r", "precision_at_1")


def raw_scores(recipe: Recipe, splits: RetrievalSplits) -> dict[str, Any]:
    """Scores the untrained backbone's pooled, normalized features.

    Returns `map_at_r` and `precision_at_1` of the test classes and
    `val_map_at_r` for each of `POOLINGS`, and as `best` the name of the one
    with the highest score on validation classes. One pass through the
    backbone, in which nothing is random; kept in the cache folder.
    """
    sides = {
        side: images
        for side in SIDES
        if (images := getattr(splits, side)) is not None
        and (side != "test" or splits.query is None)
    }
    keras.utils.set_random_seed(recipe.seed)
    keras.config.set_dtype_policy(recipe.precision)
    network = build_backbone(recipe, image_shape(recipe, splits.test))
    digest = hashlib.sha256()
    for images in sides.values():
        digest.update(fingerprint(recipe, network, images).encode())
        digest.update(images.labels.tobytes())
    file = cache_folder() / "raw" / f"{digest.hexdigest()[:24]}.json"
    # Several processes must embed together, or not at all.
    if num_processes() == 1 and file.exists():
        return json.loads(file.read_text())
    found = _scores(recipe, network, sides)
    if num_processes() == 1:
        write_json(file, found)
    return found


def pooled(maps: Any) -> dict[str, np.ndarray]:
    """Pools feature maps or tokens (batch, ..., channels), normalized.

    Powers are of the features above 1e-6, as in `GeneralizedMeanPooling`.
    """
    maps = np.asarray(maps, "float32")
    maps = maps.reshape(len(maps), -1, maps.shape[-1])
    found = {}
    for name, power in POOLINGS.items():
        if power == 1:
            rows = maps.mean(1)
        elif np.isinf(power):
            rows = maps.max(1)
        else:
            # Relative to the largest: a fifth power may overflow.
            largest = np.maximum(maps.max(1, keepdims=True), 1e-6)
            shares = np.maximum(maps, 1e-6) / largest
            rows = (shares**power).mean(1) ** (1 / power) * largest[:, 0]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        found[name] = rows / np.maximum(lengths, 1e-12)
    return found


def verdict(scores: Mapping[str, Any], recipe: Recipe) -> str:
    """Says in a sentence what a run gained over the raw features."""
    raw = scores["raw"]
    name = raw["best"]
    before, now = raw[name]["map_at_r"], scores["map_at_r"]
    text = (
        f"MAP@R of the test classes: raw features {before:.3f} ({name}), this "
        f"run {now:.3f}"
    )
    if not recipe.steps:
        return f"{text}; nothing was trained."
    if now > before:
        return f"{text}: training gained {100 * (now - before):.1f} points."
    return f"{text}: training did not help. {_advice(recipe)}"


def _scores(recipe, network, sides):
    rows: dict[str, dict[str, np.ndarray]] = {}
    for side, images in sides.items():
        parts = [pooled(maps) for maps in _maps(recipe, network, images)]
        rows[side] = {
            name: np.concatenate([part[name] for part in parts])
            for name in POOLINGS
        }
    found: dict[str, Any] = {}
    for name in POOLINGS:
        test = "query" if "query" in sides else "test"
        gallery = {}
        if "gallery" in sides:
            gallery = {
                "gallery_embeddings": rows["gallery"][name],
                "gallery_labels": sides["gallery"].labels,
            }
        scores = _retrieval(rows[test][name], sides[test].labels, **gallery)
        labels = sides["validation"].labels
        validated = _retrieval(rows["validation"][name], labels)
        found[name] = {key: float(scores[key]) for key in KEPT}
        found[name]["val_map_at_r"] = float(validated["map_at_r"])
    best = max(POOLINGS, key=lambda name: found[name]["val_map_at_r"])
    return found | {"best": best}


def _retrieval(embeddings, labels, **gallery):
    from keras_gsp.metrics import retrieval_scores

    return retrieval_scores(embeddings, labels, **gallery)


def _maps(recipe, network, images) -> Iterator[Any]:
    """Yields the backbone's feature maps, batch by batch."""
    if recipe.cache_features:
        for start in range(0, len(images), 256):
            yield images.images[start : start + 256]
        return
    predict = predictor(network)
    for pixels, _ in evaluation_batches(recipe, images).as_numpy_iterator():
        yield predict(pixels)


def _advice(recipe):
    """What to try after a training that did not help."""
    options = {"data_dir": recipe.data_dir, "crop_size": recipe.crop_size}
    options["backbone"] = recipe.backbone
    options["backbone_weights"] = recipe.backbone_weights
    if recipe.backbone == "mobilenet-v2":
        options["backbone_width"] = recipe.backbone_width
    words = [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    if recipe.frozen == "all":
        own = "--frozen none --lora-rank 8 --learning-rate 0.0001"
        command = f"training.train {recipe.dataset} {shlex.join(words)} {own}"
        return f"Try LoRA or fine-tuning: python -m {command}"
    if recipe.data_dir is None:
        return "Try another loss, rate or backbone."
    where = shlex.quote(recipe.data_dir)
    return f"Compare: python -m training.advise --data-dir {where}"
