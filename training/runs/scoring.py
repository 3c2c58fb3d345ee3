"""A run's encoder, its embeddings, and their retrieval scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory

# Test embeddings of a model, which studies score together.
FILE = "test_embeddings.npz"
# Parts of each class whose images search the others.
PARTS = 5
# Scores of the embedding's leading parts, named after their size.
OF_EACH_SIZE = ("map_at_r", "precision_at_1")


def side_scores(
    rows: Mapping[str, Any], sides: Mapping[str, Any]
) -> dict[str, Any]:
    """Scores the embeddings of each side: test images, or queries in a gallery.

    Those of `gsp.metrics.retrieval_scores`, `per_query` too.
    """
    from keras_gsp.metrics import retrieval_scores

    searching = "query" if "query" in sides else "test"
    gallery: dict[str, Any] = {}
    if "gallery" in sides:
        gallery = {
            "gallery_embeddings": rows["gallery"],
            "gallery_labels": sides["gallery"].labels,
        }
    labels = sides[searching].labels
    return retrieval_scores(rows[searching], labels, per_query=True, **gallery)


def score(
    encoder: Any,
    recipe: Recipe,
    sides: Mapping[str, Any],
    file: Path | None = None,
) -> dict:
    """Embeds images and scores their retrieval: `test`, `query` in `gallery`.

    With `lower_map_at_r` and `upper_map_at_r`, its 95 % interval over classes,
    scores of each Matryoshka size (`map_at_r_64`), and as `queries` the MAP@R
    of each image. `file` keeps the embeddings.
    """
    from keras_gsp._processes import from_first_process
    from keras_gsp.metrics import paired_difference
    from keras_gsp.models.encoder import truncated

    rows = {side: embed(encoder, recipe, part) for side, part in sides.items()}
    if file is not None:
        from_first_process(lambda: save_arrays(file, rows))
    scores = side_scores(rows, sides)
    each = np.asarray(scores.pop("per_query")["map_at_r"])
    labels = next(iter(sides.values())).labels
    if len(np.unique(labels)) > 1:
        # Of the difference to an encoder that finds nothing.
        found = paired_difference(each, 0 * each, labels)
        scores["lower_map_at_r"] = max(0.0, found["low"])
        scores["upper_map_at_r"] = min(1.0, found["high"])
    for size in recipe.matryoshka_sizes[1:]:
        leading = {
            side: truncated(part, size, recipe.normalization)
            for side, part in rows.items()
        }
        found = side_scores(leading, sides)
        scores |= {f"{name}_{size}": found[name] for name in OF_EACH_SIZE}
    numbers = {
        name: int(value) if name.startswith("num_") else float(value)
        for name, value in scores.items()
    }
    return numbers | {"queries": each.tolist()}


def part_scores(rows: Any, labels: Any, augmentation: Any = None) -> Any:
    """Returns the MAP@R of each image, (images,), among the other parts.

    A fifth of each class at a time searches the others, so that a gallery that
    knows its neighbors does not know the query. NaN without a positive.
    """
    from keras_gsp.metrics import retrieval_scores
    from keras_gsp.retrieval.augmentation import AugmentedRows

    order = np.random.default_rng(0).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    parts, scores = np.empty(len(labels), int), np.full(len(labels), np.nan)
    parts[order] = np.arange(len(labels)) % PARTS
    for part in range(PARTS):
        queries, gallery = rows[parts == part], rows[parts != part]
        if augmentation is not None:
            augmented = AugmentedRows(gallery, augmentation)
            queries, gallery = augmented.expanded(queries), augmented.rows
        found = retrieval_scores(
            queries,
            labels[parts == part],
            gallery_embeddings=gallery,
            gallery_labels=labels[parts != part],
            per_query=True,
        )
        scores[parts == part] = found["per_query"]["map_at_r"]
    return scores


def augmentation_scores(
    rows: Any, labels: Any, validation_rows: Any, validation_labels: Any
) -> dict[str, float]:
    """Scores a gallery whose rows know their neighbors, and one without.

    Validation classes choose the settings; 0 neighbors mean no gain there.
    Both are MAP@R of `part_scores`.
    """
    from keras_gsp.retrieval import NeighborAugmentation

    chosen = NeighborAugmentation.chosen(validation_rows, validation_labels)
    plain, augmented = (
        float(np.nanmean(part_scores(rows, labels, augmentation)))
        for augmentation in (None, chosen)
    )
    return {
        "num_neighbors": chosen.num_neighbors,
        "parts_map_at_r": plain,
        "augmented_map_at_r": augmented,
    }


def score_lines(scores: dict) -> list[str]:
    """Formats scores as lines, counts as integers."""
    numbers = {k: v for k, v in scores.items() if isinstance(v, int | float)}
    numbers = {k: v for k, v in numbers.items() if "step" not in k}
    width = max(16, *map(len, numbers))
    texts = {
        name: str(value) if isinstance(value, int) else f"{value:.4f}"
        for name, value in numbers.items()
    }
    return [f"{name:>{width}}  {text}" for name, text in texts.items()]


def embed(encoder: Any, recipe: Recipe, images: Any) -> Any:
    """Returns embeddings of an `ImageSet`, (num_images, embedding_size)."""
    from keras_gsp._labeled_batches import encoded
    from training.recipes.batches import evaluation_batches

    batches = evaluation_batches(recipe, images, encoder=encoder)
    return encoded(encoder, batches)[0]


def encoder_file(path: Path) -> Path:
    """Returns the encoder of a run directory, or the `.keras` file itself."""
    file = path if path.suffix == ".keras" else RunDirectory(path).encoder
    if not file.is_file():
        raise FileNotFoundError(
            "`run` must be the directory of a finished run, or the file of an "
            f"encoder that ends in .keras. Received: {path}; give its training "
            "command again to finish it."
        )
    return file


def load_preprocessing(path: Path) -> Any:
    """Returns how the encoder of a run or file cuts images, or `None`."""
    encoder = load_encoder(path)
    from keras_gsp.data.preprocessing import preprocessing_of
    from training.recipes.batches import expected_preprocessing

    if path.suffix == ".keras":
        return preprocessing_of(encoder)
    recipe = RunDirectory(path).read_recipe().with_(cache_features=False)
    return expected_preprocessing(recipe, encoder)


def load_encoder(run: RunDirectory | Path) -> Any:
    """Loads the trained encoder of a run, or of a `.keras` file."""
    file = encoder_file(run.path if isinstance(run, RunDirectory) else run)
    # TensorFlow takes seconds to import: not for an error.
    import keras

    import keras_gsp  # noqa: F401, registers the layers

    return keras.models.load_model(file, compile=False)


def load_test_embeddings(folder: Path) -> dict[str, np.ndarray]:
    """Reads the embeddings that `score` kept in a run's folder."""
    with np.load(folder / FILE) as found:
        return dict(found)


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Writes an npz file whole or not at all."""
    from keras_gsp.storage.whole import whole_file

    # Through a handle, or NumPy would add its own ending to the name.
    with whole_file(path) as aside, aside.open("wb") as file:
        np.savez(file, **arrays)
