"""Embeddings in the plane."""

from typing import Literal

import numpy as np

MapMethod = Literal["pca", "tsne", "umap"]


def embedding_map(
    embeddings: np.ndarray, method: MapMethod
) -> tuple[np.ndarray, str]:
    """Lays embeddings out in the plane.

    Args:
        embeddings: (images, size).
        method: `pca`, `tsne` (scikit-learn) or `umap` (umap-learn).

    Returns:
        (images, 2) in [-1, 1], and what the axes are, in words.

    Raises:
        ImportError: umap-learn is not installed.
    """
    if method == "pca":
        places, words = _principal(embeddings)
    elif method == "tsne":
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        perplexity = min(30.0, max(1.0, (len(embeddings) - 1) / 3))
        # Threads that wait for each other cost more than few points do.
        with threadpool_limits(1 if len(embeddings) < 1_000 else None):
            places = TSNE(
                perplexity=perplexity, init="pca", random_state=0
            ).fit_transform(embeddings)
        words = f"t-SNE, perplexity {perplexity:.0f}"
    else:
        places, words = _umap(embeddings)
    places = places - (places.max(axis=0) + places.min(axis=0)) / 2
    return places / max(np.abs(places).max(), 1e-12), words


def _principal(embeddings):
    centered = embeddings - embeddings.mean(axis=0)
    # Of the small matrix: its axes are those of the large one, far sooner.
    sizes, axes = np.linalg.eigh(centered.T @ centered)
    places = centered @ axes[:, ::-1][:, :2]
    if places.shape[1] < 2:
        places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    # The sign of an axis is chance: the longer tail goes to the right.
    places = places * np.where((places**3).sum(axis=0) < 0, -1, 1)
    share = sizes[-2:].sum() / max(sizes.sum(), 1e-12)
    return places, f"PCA, {share:.0%} of the variance"


def _umap(embeddings):
    try:
        from umap import UMAP
    except ImportError as error:
        raise ImportError(
            "`map` umap needs umap-learn: pip install 'keras-gsp[umap]'. "
            f"Received: {error}."
        ) from error
    neighbors = int(np.clip(len(embeddings) - 1, 2, 15))
    # A seed of its own makes it repeatable, and says so in a warning.
    found = UMAP(n_neighbors=neighbors, random_state=0, n_jobs=1)
    return found.fit_transform(embeddings), f"UMAP, {neighbors} neighbors"
