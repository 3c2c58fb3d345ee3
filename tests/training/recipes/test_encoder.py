"""Every pooling makes an encoder; every backbone a feature map."""

import json
import warnings

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data.preprocessing import preprocessing_of
from training.recipes.choices import MANY, POOLINGS, is_gsp
from training.recipes.learner import (
    build_backbone,
    build_recipe_encoder,
    fetch_imagenet_weights,
)
from training.recipes.recipe import Recipe

SMALL = Recipe.of(embedding_size=16, num_prototypes=4)
SHAPE = (32, 32, 3)
TRANSFORMER = dict(patch_size=8, hidden_dim=8, num_layers=1, num_heads=2)


@pytest.mark.parametrize("word", POOLINGS)
def test_every_word_makes_an_encoder_of_the_embedding_size(word):
    encoder = build_recipe_encoder(SMALL.with_(pooling=word), SHAPE)
    size = 16 * MANY if word.endswith("large") else 16
    assert encoder.output_shape == (None, size)
    pooling = encoder.get_layer("pooling")
    if word in ("gem", "gem-gsp"):
        # GSP matches projected features, and pools the backbone's own.
        pooled = keras.tree.flatten(pooling.input)[-1]
        assert pooled.shape == encoder.get_layer("glyph_cnn").output.shape
        names = [weight.name for weight in pooling.trainable_weights]
        assert "log_power_excess" in names


def test_gsp_alone_brings_its_own_histogram():
    for word in ("gmp-gsp", "solar"):
        recipe = SMALL.with_(pooling=word, regularizer="zsr")
        encoder = build_recipe_encoder(recipe, SHAPE)
        assert encoder.output["histogram"].shape == (None, 4)
        names = {layer.name for layer in encoder.layers}
        assert ("histogram" in names) == (not is_gsp(word))


@pytest.fixture
def hub():
    return pytest.importorskip("keras_hub")


def test_hub_preset_becomes_a_map_without_its_class_token(hub, tmp_path):
    shape = (32, 24, 3)
    vit = hub.models.ViTBackbone(image_shape=shape, mlp_dim=16, **TRANSFORMER)
    vit.save_to_preset(tmp_path)
    converter = hub.layers.ViTImageConverter(scale=1 / 127.5, offset=-1.0)
    converter.save_to_preset(tmp_path)
    recipe = SMALL.with_(backbone=f"hub:{tmp_path}", frozen="all")
    # Images of another size are resized to the preset's.
    backbone = build_backbone(recipe, SHAPE)
    assert backbone.output_shape == (None, 4, 3, 8)
    assert not backbone.trainable_weights
    images = np.random.default_rng(0).integers(0, 256, (2, *shape))
    found = build_backbone(recipe, shape)(images.astype("uint8"))
    tokens = vit(images / 127.5 - 1.0)
    np.testing.assert_allclose(
        found, np.reshape(tokens[:, 1:], (2, 4, 3, 8)), atol=1e-4
    )


def dino(hub):
    return hub.models.DINOV3Backbone(
        image_shape=(16, 16, 3),
        num_register_tokens=4,
        intermediate_dim=16,
        **TRANSFORMER,
    )


@pytest.mark.filterwarnings("ignore:The preset")
def test_tokens_of_a_preset_of_any_size_lie_on_the_images_grid(hub, tmp_path):
    dino(hub).save_to_preset(tmp_path)
    # keras-hub itself cannot build one of any size; a file may ask for it.
    file = tmp_path / "config.json"
    saved = json.loads(file.read_text())
    saved["config"]["image_shape"] = [None, None, 3]
    file.write_text(json.dumps(saved))
    recipe = SMALL.with_(backbone=f"hub:{tmp_path}")
    backbone = build_backbone(recipe, (16, 24, 3))
    assert backbone(np.zeros((2, 16, 24, 3), "uint8")).shape == (2, 2, 3, 8)


def test_a_grid_is_what_the_backbone_states(hub):
    from training.recipes.hub_backbone import feature_part, token_map

    network = dino(hub)
    images = keras.Input((16, 16, 3))
    tokens = network({"pixel_values": images})
    # Nine tokens: 2 x 2 after five, not 3 x 3.
    assert token_map(network, tokens, images).shape == (None, 2, 2, 8)
    network.num_register_tokens = 0
    with pytest.raises(ValueError, match="9 tokens, 2 x 2 patches and 1 bef"):
        token_map(network, tokens, images)
    network.patch_size = None
    with pytest.raises(ValueError, match="`patch_size`"):
        token_map(network, tokens, images)
    # A model that pools is cut before.
    siglip = hub.models.SigLIPVisionEncoder(
        image_shape=SHAPE, intermediate_dim=16, **TRANSFORMER
    )
    tokens = feature_part(siglip).predict(np.zeros((1, *SHAPE)), verbose=0)
    assert tokens.shape == (1, 16, 8)


def test_backbones_take_bytes_to_feature_maps_and_may_be_frozen():
    backbone = build_backbone(Recipe.of(backbone="mobilenet-v2"), SHAPE)
    assert backbone.input.dtype == "uint8"
    assert backbone.output.shape[1:] == (1, 1, 1280)
    frozen = build_backbone(Recipe.of(frozen="all"), (16, 16, 3))
    assert not frozen.trainable_variables
    half = build_backbone(Recipe.of(frozen="batch-norm"), (16, 16, 3))
    names = {v.path.split("/")[-1] for v in half.trainable_variables}
    assert names == {"kernel"}


def test_backbone_weights_come_from_the_file(tmp_path):
    source = build_backbone(Recipe.of(seed=1), (16, 16, 3))
    file = str(tmp_path / "network.weights.h5")
    source.layers[-1].save_weights(file)
    loaded = build_backbone(Recipe.of(backbone_weights=file), (16, 16, 3))
    assert all(map(np.array_equal, source.get_weights(), loaded.get_weights()))
    another = Recipe.of(backbone_weights=file, backbone="mobilenet-v2")
    with warnings.catch_warnings(record=True) as notes:
        with pytest.raises(ValueError, match="of its width too"):
            build_backbone(another, (32, 32, 3))
    assert not notes


def test_untrained_features_know_how_images_are_cut():
    sizes = {"embedding_size": 8, "crop_size": 16, "resize": 20}
    recipe = Recipe.of(steps=0, projection_start="learned", **sizes)
    encoder = build_recipe_encoder(recipe, (16, 16, 3))
    assert preprocessing_of(encoder) == gsp.data.Preprocessing(16, 20)


def test_imagenet_weights_that_cannot_be_fetched_are_explained(monkeypatch):
    def fail(**arguments):
        raise Exception("URL fetch failure on https://x: -1")  # noqa: TRY002

    monkeypatch.setattr(keras.applications, "ResNet50", fail)
    recipe = SMALL.with_(backbone="resnet50", backbone_weights="imagenet")
    with pytest.raises(ConnectionError, match="--backbone-weights FILE"):
        fetch_imagenet_weights(recipe)
    with pytest.raises(ValueError, match="mobilenet-v2 and resnet50"):
        fetch_imagenet_weights(SMALL.with_(backbone_weights="imagenet"))
