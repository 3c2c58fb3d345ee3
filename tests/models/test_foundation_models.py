"""Every foundation model's tokens lie where their patches lay.

The models are small and random; one patch of the image is changed at a time,
and the feature that changes most has to be the one in its place.
"""

import keras
import numpy as np
import pytest

import keras_gsp as gsp

SIDE, PATCH = 32, 8
SMALL = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32}
WIDE = {"intermediate_dim": 16, "image_shape": (SIDE, SIDE, 3)}
REGISTERS = 2


def hub_model(name, **options):
    hub = pytest.importorskip(
        "keras_hub", reason="the extra [hub] is not installed"
    )
    return getattr(hub.models, name)(**options)


def vit():
    return hub_model(
        "ViTBackbone",
        image_shape=(SIDE, SIDE, 3),
        patch_size=PATCH,
        mlp_dim=16,
        **SMALL,
    )


def dino_v2():
    return hub_model(
        "DINOV2Backbone",
        patch_size=PATCH,
        num_register_tokens=REGISTERS,
        position_embedding_shape=(SIDE, SIDE, 3),
        **SMALL,
        **WIDE,
    )


def dino_v3():
    return hub_model(
        "DINOV3Backbone",
        patch_size=PATCH,
        num_register_tokens=REGISTERS,
        **SMALL,
        **WIDE,
    )


def clip():
    return hub_model("CLIPVisionEncoder", patch_size=PATCH, **SMALL, **WIDE)


def siglip():
    pooled = hub_model("SigLIPVisionEncoder", patch_size=PATCH, **SMALL, **WIDE)
    # It pools by itself; its tokens are those before.
    tokens = pooled.get_layer("post_layer_norm").output
    return keras.Model(pooled.inputs, tokens)


def swin():
    return hub_model(
        "SwinTransformerBackbone",
        image_shape=(SIDE, SIDE, 3),
        embed_dim=8,
        depths=(1, 1),
        num_heads=(2, 2),
        window_size=4,
        patch_size=4,
    )


def convnext():
    return keras.applications.ConvNeXtTiny(
        include_top=False, weights=None, input_shape=(96, 96, 3)
    )


# Builder, leading tokens, what has to be said about the grid.
MODELS = {
    "vit": (vit, 1, {}),
    "dino-v2": (dino_v2, 1 + REGISTERS, {}),
    "dino-v3": (dino_v3, 1 + REGISTERS, {}),
    "clip": (clip, 1, {}),
    # keras-hub states one token more than the model gives.
    "siglip": (siglip, 0, {"grid_shape": (4, 4)}),
    "swin": (swin, 0, {}),
    "convnext": (convnext, 0, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_changed_patch_changes_the_feature_in_its_place(name, tmp_path):
    build, prefix_tokens, options = MODELS[name]
    pooling = gsp.layers.GeneralizedSumPooling(4, name="pooling")
    encoder = gsp.models.build_encoder(
        build(),
        embedding_size=16,
        pooling=pooling,
        prefix_tokens=prefix_tokens,
        **options,
    )
    rows, columns = pooling.input.shape[1:3]
    assert rows == columns >= 3
    side = encoder.inputs[0].shape[1]
    images = one_changed_patch(side, rows)
    maps = keras.Model(encoder.inputs, pooling.input).predict(images, verbose=0)
    changes = np.linalg.norm(maps[1:] - maps[:1], axis=-1)
    found = changes.reshape(rows * columns, -1).argmax(axis=1)
    np.testing.assert_array_equal(found, np.arange(rows * columns))
    weights = np.asarray(pooling.pooling_weights(maps))
    assert weights.shape == (len(maps), rows, columns)
    if name == "convnext":
        return
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.saving.load_model(tmp_path / "encoder.keras")
    np.testing.assert_allclose(
        loaded.predict(images[:2], verbose=0),
        encoder.predict(images[:2], verbose=0),
        atol=1e-5,
    )


def one_changed_patch(side, rows):
    """An image of noise, then that image with one patch inverted each."""
    generator = np.random.default_rng(0)
    image = generator.normal(size=(side, side, 3)).astype("float32")
    step = side // rows
    images = [image]
    for row in range(rows):
        for column in range(rows):
            changed = image.copy()
            place = (
                slice(row * step, (row + 1) * step),
                slice(column * step, (column + 1) * step),
            )
            changed[place] = 2.0 - 3.0 * changed[place]
            images.append(changed)
    return np.stack(images)


def test_a_model_that_pools_by_itself_is_refused_with_the_way_out():
    images = keras.Input((8, 8, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(images)
    with pytest.raises(ValueError, match="backbone.get_layer"):
        gsp.models.build_encoder(keras.Model(images, pooled))
