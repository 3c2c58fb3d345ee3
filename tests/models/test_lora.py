"""LoRA trains factors of a frozen backbone's kernels, and merges them."""

import keras
import numpy as np

import keras_gsp as gsp
from keras_gsp.models.lora import lora_layers
from keras_gsp.retrieval.serving.served_encoder import ServedEncoder
from tests.models.test_foundation_models import transformer

LABELS = np.repeat(np.arange(4), 2)


def images(seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(8, 12, 12, 3)).astype("float32")


def backbone():
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(12, 3, strides=2, use_bias=False, name="first"),
            layers.DepthwiseConv2D(3, name="depthwise"),
            layers.BatchNormalization(name="norm"),
            layers.Conv2D(2, 1, name="narrow"),
            layers.EinsumDense("bhwc,cd->bhwd", (3, 3, 24), name="einsum"),
            layers.Dense(16, name="dense"),
        ]
    )


def encoder(lora_rank=2, network=None):
    network = backbone() if network is None else network
    options = {"embedding_size": 4, "lora_rank": lora_rank}
    return gsp.models.build_encoder(network, **options)


def trained(model=None, **options):
    keras.utils.set_random_seed(1)
    made = gsp.models.MetricLearner(model or encoder(), **options)
    adam, loss = keras.optimizers.Adam(1e-2), gsp.losses.ContrastiveLoss()
    made.compile(adam, loss=loss, run_eagerly=True)
    made.fit(images(), LABELS, batch_size=8, epochs=2, verbose=0)
    return made


def values(model):
    return {v.path: keras.ops.convert_to_numpy(v) for v in model.variables}


def trained_paths(model):
    # Without the names of models around the layer.
    paths = [v.path.split("/") for v in model.trainable_variables]
    return ["/".join(path[-2:]) for path in paths]


def test_only_factors_biases_of_their_layers_and_the_head_are_trained():
    model = encoder()
    paths = set(trained_paths(model))
    factors = {
        f"{layer}/lora_kernel_{side}"
        for layer in ("first", "dense")
        for side in "ab"
    }
    head = {"projection/kernel", "projection/bias"}
    # The factors of `narrow` and `einsum` would be larger than the kernels.
    assert paths == factors | {"dense/bias"} | head
    # The start computes what the backbone did.
    plain = encoder(None)
    head = plain.get_layer("projection")
    head.set_weights(model.get_layer("projection").get_weights())
    np.testing.assert_allclose(model(images()), plain(images()), atol=1e-6)
    before = values(model)
    proxies = gsp.layers.ClassProxies(4, name="proxies")
    made = trained(model=model, anchor_weight=0.1, proxies=proxies)
    moved = {
        path
        for path, value in values(model).items()
        if not np.array_equal(value, before[path])
    }
    assert moved == {v.path for v in model.trainable_variables}
    shapes = [tuple(anchor.shape) for anchor in made.anchored.anchors]
    assert shapes == [tuple(v.shape) for v in model.trainable_variables]


def test_a_merged_kernel_is_the_kernel_plus_the_product():
    model = trained().encoder
    merged = gsp.models.merge_lora(model)
    assert not lora_layers(merged)
    layer = model.get_layer("dense")
    kernel, a, b = (
        keras.ops.convert_to_numpy(one)
        for one in (layer._kernel, layer.lora_kernel_a, layer.lora_kernel_b)
    )
    assert np.abs(b).max() > 0
    found = keras.ops.convert_to_numpy(merged.get_layer("dense").kernel)
    np.testing.assert_allclose(found, kernel + a @ b, atol=1e-6)
    np.testing.assert_allclose(merged(images()), model(images()), atol=1e-6)
    assert gsp.models.merge_lora(merged) is merged


def test_a_loaded_learner_embeds_alike_and_trains_on(tmp_path):
    made = trained()
    made.save(tmp_path / "learner.keras")
    loaded = keras.saving.load_model(tmp_path / "learner.keras")
    np.testing.assert_allclose(loaded(images()), made(images()), atol=1e-6)
    names = [v.path for v in loaded.encoder.trainable_variables]
    assert trained_paths(loaded.encoder) == trained_paths(made.encoder)
    before = values(loaded.encoder)
    trained(loaded.encoder)
    after = values(loaded.encoder)
    for name in names:
        assert not np.array_equal(after[name], before[name]), name


def test_what_is_served_is_the_merged_encoder():
    model = trained().encoder
    served = ServedEncoder(model).encoder
    assert not lora_layers(served)
    np.testing.assert_allclose(served(images()), model(images()), atol=1e-6)


def test_a_backbone_of_keras_hub_adapts_its_attention():
    network = transformer("ViTBackbone", mlp_dim=16)
    model = encoder(network=network)
    names = {layer.name for layer in lora_layers(model)}
    assert names <= set(network.default_lora_layer_names())
    assert len(names) == 2
    for layer in lora_layers(model):
        layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    inputs = np.random.default_rng(0).normal(size=(2, 24, 32, 3))
    merged = gsp.models.merge_lora(model)
    assert not lora_layers(merged)
    np.testing.assert_allclose(merged(inputs), model(inputs), atol=1e-5)
