"""Features of a frozen backbone: computed once, kept on disk."""

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import PIL
from tqdm import tqdm

from keras_gsp._labeled_batches import batches_of
from keras_gsp._processes import predictor
from keras_gsp.data import ImageSet
from keras_gsp.data.archives import cache_folder
from keras_gsp.layers.patch_tokens import TokenGrid
from keras_gsp.storage.whole import whole_file
from training.datasets.glyphs import CELL
from training.datasets.image_set import RetrievalSplits
from training.datasets.layout import files_digest
from training.recipes.batches import (
    cropped_batches,
    evaluation_batches,
    image_shape,
)
from training.recipes.learner import build_recipe_encoder, cut_backbone
from training.recipes.recipe import Recipe

# Random crops of an image whose features are kept beside those of the whole.
CROPS = 2


def with_features(recipe: Recipe, splits: RetrievalSplits) -> RetrievalSplits:
    """Replaces images by the backbone's feature maps, as cached float16."""
    return splits.mapped(partial(image_features, recipe))


def class_tokens(recipe: Recipe, images: ImageSet) -> np.ndarray | None:
    """Returns the class token of each image, (images, channels), float16.

    Computed with the features; None where the backbone has no such token.
    """
    file = _features_file(recipe, images)[0]
    file = file.with_suffix(".token.npy")
    return np.load(file) if file.exists() else None


def with_class_token(backbone: Any) -> keras.Model | None:
    """Returns a model of images to map and class token, None without one."""
    network = backbone.layers[-1]
    for layer in getattr(network, "layers", ()):
        if isinstance(layer, TokenGrid) and layer.prefix_tokens:
            tokens = layer.input
            both = keras.Model(network.input, [network.output, tokens[:, 0]])
            pixels = backbone.layers[-2].output
            return keras.Model(backbone.input, both(pixels))
    return None


def _features_file(recipe, images):
    """The file of the features, and the backbone that computes them."""
    recipe = recipe.with_(cache_features=False)
    # A backbone without a weights file has the same random weights each time.
    keras.utils.set_random_seed(recipe.seed)
    pixels, features, _ = cut_backbone(recipe, image_shape(recipe, images))
    backbone = keras.Model(pixels, features)
    name = f"{fingerprint(recipe, backbone, images)}.npy"
    if recipe.augmentation != "none":
        name = f"{recipe.augmentation}-{name}"
    return cache_folder() / "features" / name, backbone


def image_features(recipe: Recipe, images: ImageSet) -> ImageSet:
    """Replaces images by the backbone's feature maps, as cached float16."""
    file, backbone = _features_file(recipe, images)
    if not file.exists():
        recipe = recipe.with_(cache_features=False)
        batches = evaluation_batches(recipe, images)
        features, tokens = _computed(backbone, batches, len(images))
        if recipe.augmentation != "none":
            crops = (cropped_batches(recipe, images, s) for s in range(CROPS))
            views = (_computed(backbone, c, len(images))[0] for c in crops)
            features = np.concatenate([features, *views], axis=-1)
        if tokens is not None:
            _save(file.with_suffix(".token.npy"), tokens)
        _save(file, features)
    return replace(images, images=np.load(file), paths=None)


def _save(file, array):
    # Through a handle, or NumPy would add its own ending to the name.
    with whole_file(file) as aside, aside.open("wb") as content:
        np.save(content, array)


def complete_encoder(recipe: Recipe, encoder: Any) -> Any:
    """Adds the backbone to an encoder that was trained on cached features."""
    if not recipe.cache_features:
        return encoder
    recipe = recipe.with_(cache_features=False)
    # Canvases of `glyphs` are taken whole.
    side = recipe.crop_size or recipe.data_arguments.get(
        "canvas_size", 2 * CELL
    )
    keras.utils.set_random_seed(recipe.seed)
    complete = build_recipe_encoder(recipe, (side, side, 3))
    # Trained layers by name; the backbone has its weights already.
    for layer in encoder.layers:
        if layer.weights:
            complete.get_layer(layer.name).set_weights(layer.get_weights())
    return complete


def fingerprint(recipe: Recipe, backbone: Any, images: ImageSet) -> str:
    """Returns a name for a backbone's features of images, in a cache."""
    cut = recipe.backbone, recipe.crop_size, recipe.shorter_side
    computed = keras.config.dtype_policy().name, "Pillow", PIL.__version__
    digest = hashlib.sha256(f"{cut}, {computed}".encode())
    for weights in backbone.get_weights():
        digest.update(weights.tobytes())
    if images.paths is None:
        digest.update(np.ascontiguousarray(images.images).data)
    else:
        digest.update(files_digest(images.paths).encode())
    return digest.hexdigest()[:24]


def _computed(backbone, batches, length):
    """Feature maps, and class tokens or None, of all images."""
    both = with_class_token(backbone)
    maps, tokens, predict = [], [], predictor(both or backbone)
    with tqdm(total=length, desc="features", unit="image") as bar:
        for pixels, _ in batches_of(batches):
            outputs = predict(pixels)
            features, token = (outputs, None) if both is None else outputs
            maps.append(features.astype("float16"))
            if token is not None:
                tokens.append(token.astype("float16"))
            bar.update(len(features))
    return np.concatenate(maps), np.concatenate(tokens) if tokens else None
