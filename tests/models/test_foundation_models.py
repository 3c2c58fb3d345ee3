"""The tokens of each foundation model keep the places of their patches.

The models are small, and what mixes tokens is set to zero: a feature then
depends on the patch in its place and on no other. One patch of the image is
changed at a time; that feature has to change, and all others have to stay.
"""

import re

import keras
import numpy as np
import pytest

import keras_gsp as gsp

# The last layer of each branch beside a residual connection.
MIXING = re.compile(
    "attention_output|attention_projection|dense_2|fc2|layer_scale"
)


def small(name, image_shape, **options):
    hub = pytest.importorskip(
        "keras_hub", reason="the extra [hub] is not installed"
    )
    return getattr(hub.models, name)(image_shape=image_shape, **options)


def transformer(name, **options):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32}
    return small(name, (24, 32, 3), patch_size=8, **sizes, **options)


def swin():
    sizes = {"embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2)}
    sizes |= {"window_size": 4, "patch_size": 4}
    return small("SwinTransformerBackbone", (32, 48, 3), **sizes)


# Builder, rows and columns, leading tokens, options of `build_encoder`. DINOv2,
# CLIP, SigLIP and ConvNeXt differ from these in no path of the encoder.
MODELS = {
    "vit": (lambda: transformer("ViTBackbone", mlp_dim=16), (3, 4), 1, {}),
    "dino-v3": (
        lambda: transformer(
            "DINOV3Backbone", intermediate_dim=16, num_register_tokens=2
        ),
        (3, 4),
        3,
        {"grid_shape": (3, 4)},  # keras-hub states that of a square image.
    ),
    "swin": (swin, (4, 6), 0, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_changed_patch_changes_the_feature_in_its_place(name, tmp_path):
    build, grid, prefix_tokens, options = MODELS[name]
    pooling = gsp.layers.GeneralizedSumPooling(4, name="pooling")
    encoder = gsp.models.build_encoder(
        without_mixing(build()),
        embedding_size=16,
        pooling=pooling,
        prefix_tokens=prefix_tokens,
        **options,
    )
    assert pooling.input.shape[1:3] == grid
    images = one_changed_patch(encoder.inputs[0].shape[1:], grid)
    maps = keras.Model(encoder.inputs, pooling.input).predict(images, verbose=0)
    changes = np.linalg.norm(maps[1:] - maps[:1], axis=-1)
    changes = changes.reshape(len(changes), -1)
    # Rounding of what did not change, far below what did.
    np.testing.assert_array_equal(changes > 1e-4, np.eye(len(changes)))
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_allclose(
        loaded.predict(images[:2], verbose=0),
        encoder.predict(images[:2], verbose=0),
        atol=1e-5,
    )


def without_mixing(network):
    """The network with every residual branch set to zero."""
    for weight in network.weights:
        if MIXING.search(weight.path):
            weight.assign(np.zeros(weight.shape))
    return network


def one_changed_patch(image_shape, grid):
    """An image of noise, then that image with one patch inverted each."""
    generator = np.random.default_rng(0)
    image = generator.normal(size=image_shape).astype("float32")
    patch = np.ones((1, image_shape[0] // grid[0], image_shape[1] // grid[1]))
    chosen = np.eye(grid[0] * grid[1]).reshape(-1, *grid)
    is_changed = np.kron(chosen, patch)[..., None] > 0
    changed = np.where(is_changed, 2.0 - 3.0 * image, image)
    return np.concatenate([image[None], changed])
