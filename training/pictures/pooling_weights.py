"""Where a pooling looks: its weights laid over the images."""

from pathlib import Path
from typing import Any

import numpy as np

from training.pictures.palette import picture

ALPHA = 0.65
_BLOCK = 200


def draw_pooling_weights(
    path: Path, images: Any, weights: Any, titles: Any
) -> None:
    """Draws images above the same images under their pooling weights.

    Args:
        path: PNG file to write.
        images: (num_images, height, width, 3), uint8.
        weights: (num_images, rows, columns), each map sums to 1.
        titles: What each image shows.
    """
    count = len(images)
    # Multiples of what average pooling would give everywhere.
    relative = np.asarray(weights) * weights[0].size
    size = (1.35 * count + 1.2, 3.4)
    with picture(path, 2, count, figsize=size) as axes:
        for column in range(count):
            upper, lower = axes[:, column]
            upper.set_title(titles[column])
            upper.imshow(images[column])
            shown = lower.imshow(images[column])
            extent = shown.get_extent()
            shown = lower.imshow(
                relative[column],
                cmap="viridis",
                alpha=ALPHA,
                vmin=0,
                vmax=relative.max(),
                extent=extent,
                interpolation="nearest",
            )
            for axis in (upper, lower):
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
        axes[0, 0].set_ylabel("image")
        axes[1, 0].set_ylabel("weights")
        axes[0, 0].figure.colorbar(
            shown, ax=list(axes[:, -1]), label="weight / average", shrink=0.9
        )


def pooling_weights(encoder: Any, images: Any) -> Any:
    """Weights of a GSP encoder's pooling, (num_images, rows, columns).

    Args:
        encoder: Model from `build_encoder` with a layer `"pooling"` that is
            a `GeneralizedSumPooling`.
        images: (num_images, height, width, 3), uint8.
    """
    import keras

    from keras_gsp.models.encoder import features_before

    pooling = encoder.get_layer("pooling")
    features = features_before(encoder, pooling)
    weights = pooling.pooling_weights(features.predict_on_batch(images))
    return keras.ops.convert_to_numpy(weights)


def prototype_maps(encoder: Any, images: Any) -> Any:
    """The part of each pooling weight that goes to each prototype.

    Args:
        encoder: See `pooling_weights`.
        images: (num_images, height, width, 3), uint8.

    Returns:
        (num_images, rows, columns, num_prototypes); each image's sum to 1,
        and over the places to its histogram.
    """
    import keras

    from keras_gsp.models.encoder import features_before

    pooling = encoder.get_layer("pooling")
    features = features_before(encoder, pooling)
    maps = []
    for start in range(0, len(images), _BLOCK):
        block = features(images[start : start + _BLOCK], training=False)
        plan = pooling.transport_plan(block) / pooling.ratio
        maps.append(keras.ops.convert_to_numpy(plan))
    return np.concatenate(maps)
