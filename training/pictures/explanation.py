"""Draw why two images are near: prototypes and their parts of both."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from training.pictures.framed_image import draw_image
from training.pictures.palette import picture

NUM_PROTOTYPES = 4


def draw_explanation(
    path: Path | io.BytesIO, encoder: Any, query: bytes, neighbor: bytes
) -> None:
    """Draws a row each for two encoded images, as the encoder sees them.

    The image, what of it is pooled, and the parts of that which belong to the
    prototypes that contribute most, each with its share of the similarity.
    `ValueError` for an encoder that `explain` refuses.
    """
    import keras_gsp as gsp
    from keras_gsp.data.preprocessing import preprocessing_of

    preprocessing = preprocessing_of(encoder)
    if preprocessing is None:
        raise ValueError(
            "`encoder` must know its preprocessing. Received: none."
        )
    images = [np.asarray(preprocessing.decode(x)) for x in (query, neighbor)]
    shares = gsp.retrieval.explain(
        encoder, images[0][None].astype("float32"), images[1][None]
    )
    contributions = shares.contributions[0]
    strongest = np.argsort(-np.abs(contributions))[:NUM_PROTOTYPES]
    titles = [f"similarity {shares.similarity[0]:.3f}"]
    titles += [f"prototype {i}\nadds {contributions[i]:.3f}" for i in strongest]
    columns = 1 + len(titles)
    with picture(path, 2, columns, figsize=(2.1 * columns, 4.8)) as axes:
        for row, side, pixels in zip(
            axes, ("query", "neighbor"), images, strict=True
        ):
            draw_image(row[0], pixels, None, side)
            maps = getattr(shares, f"{side}_maps")[0]
            parts = [maps.sum(axis=-1)]
            parts += [maps[..., i] for i in strongest]
            for axis, title, part in zip(row[1:], titles, parts, strict=True):
                draw_image(axis, pixels, part, title)
