"""A run's encoder, its embeddings, and their retrieval scores."""

from typing import Any

from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory


def score(
    encoder: Any,
    recipe: Recipe,
    images: Any,
    query: Any = None,
    gallery: Any = None,
) -> dict:
    """Embeds images and scores their retrieval.

    Args:
        encoder: Keras model to embeddings, or to a dict with `"embedding"`.
        recipe: Says how images are cut.
        images: `ImageSet` that searches itself, unless the two others are
            given.
        query: `ImageSet` of queries.
        gallery: `ImageSet` that they search.

    Returns:
        The dict of `gsp.metrics.retrieval_scores`, in Python numbers.
    """
    import keras_gsp as gsp

    searching = images if query is None else query
    embeddings = embed(encoder, recipe, searching)
    references = {}
    if gallery is not None:
        references = {
            "gallery_embeddings": embed(encoder, recipe, gallery),
            "gallery_labels": gallery.labels,
        }
    scores = gsp.metrics.retrieval_scores(
        embeddings, searching.labels, **references
    )
    return {
        name: int(value) if name.startswith("num_") else float(value)
        for name, value in scores.items()
    }


def embed(encoder: Any, recipe: Recipe, images: Any) -> Any:
    """Embeddings of an `ImageSet`, (num_images, embedding_size), float32."""
    from keras_gsp.embeddings.labeled_batches import encoded
    from training.recipes.batches import evaluation_batches

    return encoded(encoder, evaluation_batches(recipe, images))[0]


def load_encoder(directory: RunDirectory) -> Any:
    """The trained encoder of a run.

    Raises:
        FileNotFoundError: the run has none yet.
    """
    if not directory.encoder.exists():
        raise FileNotFoundError(
            f"{directory.path} must hold {directory.encoder.name}. Received "
            "a run that is not finished; the command that began it goes on "
            "with it."
        )
    import keras

    import keras_gsp  # noqa: F401, registers the layers

    return keras.models.load_model(directory.encoder, compile=False)
