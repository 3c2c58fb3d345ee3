"""The contract of every layer that is no pooling: arguments, shapes, files."""

import json

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.layers.embedding_normalization import EmbeddingNormalization
from keras_gsp.layers.patch_tokens import PatchTokens, TokenGrid
from keras_gsp.layers.pooling.feature_pooling import FeaturePooling
from tests.compiled import not_on_jax

# Its arguments, away from their defaults, and the shape of a sample.
LAYERS = {
    "ClassEmbeddings": (
        {
            "num_classes": 5,
            "embedding_size": 3,
            "embeddings_initializer": "ones",
            "embeddings_regularizer": "l2",
            "embeddings_constraint": "unit_norm",
        },
        (),
    ),
    "ClassProxies": (
        {
            "num_classes": 4,
            "proxies_per_class": 2,
            "proxies_initializer": "ones",
            "proxies_regularizer": gsp.losses.CenterRegularizer(0.3),
        },
        (8,),
    ),
    "EmbeddingNormalization": ({"normalization": "ball"}, (6,)),
    "PatchTokens": ({"prefix_tokens": 1}, (7, 6)),
    "PrototypeHistogram": (
        {
            "num_prototypes": 7,
            "inverse_temperature": 4.0,
            "affinity": "l2",
        },
        (None, 4, 6),
    ),
    "TokenGrid": ({"grid_shape": (2, 3), "prefix_tokens": 1}, (7, 6)),
    "Whitening": ({"size": 3, "shrinkage": 0.2}, (6,)),
}
# It has a state that a call changes: test_embedding_memory.py.
ELSEWHERE = {"EmbeddingMemory"}
# `build_encoder` adds them.
INTERNAL = {
    kind.__name__: kind
    for kind in (EmbeddingNormalization, PatchTokens, TokenGrid)
}


@not_on_jax
def test_every_layer_has_a_row():
    names = {
        name
        for name in gsp.layers.__all__
        if not issubclass(getattr(gsp.layers, name), FeaturePooling)
    }
    assert names | {*INTERNAL} == {*LAYERS} | ELSEWHERE


@not_on_jax
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_all_are_saved_and_symbolic_outputs_are_the_eager_ones(
    policy, tmp_path
):
    keras.config.set_dtype_policy(policy)
    random = np.random.default_rng(0)
    inputs, arrays, outputs = {}, {}, {}
    for name, (arguments, shape) in LAYERS.items():
        inputs[name] = keras.Input(shape, name=name)
        arrays[name] = np.array([4.0, 0.0, 2.0], "float32")
        if shape:
            known = [size or 5 for size in shape]
            arrays[name] = random.normal(size=(3, *known)).astype("float32")
        kind = INTERNAL.get(name) or getattr(gsp.layers, name)
        layer = kind(**arguments)
        config = layer.get_config()
        assert config.keys() >= arguments.keys()
        json.dumps(config)  # Of plain values alone.
        assert type(layer).from_config(config).get_config() == config
        for number, one in enumerate(keras.tree.flatten(layer(inputs[name]))):
            outputs[f"{name}_{number}"] = one
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    found, eager = loaded.predict(arrays, verbose=0), model(arrays)
    for name, symbolic in outputs.items():
        expected = eager[name]
        dtype = keras.backend.standardize_dtype(expected.dtype)
        if not name.startswith("EmbeddingNormalization"):
            # It declares the policy's dtype and returns float32.
            assert symbolic.dtype == dtype, name
        assert symbolic.shape[1:] == expected.shape[1:], name
        np.testing.assert_allclose(
            np.asarray(found[name], "float32"),
            keras.ops.cast(expected, "float32"),
            atol=1e-5 if policy == "float32" else 0.05,
            err_msg=name,
        )
