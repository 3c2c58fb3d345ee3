"""What every pooling promises: one table, and every test runs on all of it.

A new pooling adds one line to `POOLINGS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp import layers
from tests.compiled import trains_compiled
from tests.directional_slopes import slope_errors
from tests.gradients import gradients

CHANNELS = 6


@dataclass(frozen=True)
class Pooling:
    """A row of the table.

    Attributes:
        make: builds the layer from Keras's own arguments.
        size: of the pooled vector.
        constant: what equal features f pool to: `equal` f, `parallel` a
            positive multiple of it, or nothing known.
        sees_neighbors: whether the order of a map's places matters.
    """

    make: Callable[..., keras.layers.Layer]
    size: int = CHANNELS
    constant: str | None = None
    sees_neighbors: bool = False


def row(name, *arguments, constant=None, size=CHANNELS, near=False, **options):
    kind = getattr(layers, name)
    return Pooling(
        lambda **kwargs: kind(*arguments, **options, **kwargs),
        size,
        constant,
        near,
    )


gsp = "GeneralizedSumPooling"
POOLINGS = {
    "gem": row("GeneralizedMeanPooling", 2.0, constant="equal"),
    "gem-learned": row(
        "GeneralizedMeanPooling", 2.0, learn_power=True, constant="equal"
    ),
    "gsp": row(gsp, 4, constant="equal"),
    "gsp-power": row(gsp, 4, power=2.0, learn_power=True, constant="equal"),
    "gsp-max": row(gsp, 4, add_max=True, constant="parallel"),
    "gsp-background": row(
        gsp, 4, prototype_role="background", constant="equal"
    ),
    "gsp-learned": row(
        gsp, 4, learn_ratio=True, use_unary_costs=True, constant="equal"
    ),
    "gsp-all": row(
        gsp,
        4,
        power=2.0,
        learn_power=True,
        add_max=True,
        prototype_role="background",
        learn_ratio=True,
        use_unary_costs=True,
        constant="parallel",
    ),
    "average-max": row("AverageMaxPooling", constant="parallel"),
    "average-max-projected": row(
        "AverageMaxPooling", projection_size=5, size=5
    ),
    "cbam": row("CBAMPooling", 2, kernel_size=3, near=True),
    "crow": row("CroWPooling", constant="parallel"),
    "delf": row("DELFPooling", 8, constant="parallel"),
    "gemax": row("GeneralizedMaxPooling", 0.5, constant="parallel"),
    "gsop": row("GSoPPooling", 3),
    "otk": row("OTKPooling", 3, size=18),
    "otk-projected": row(
        "OTKPooling", 3, projection_size=4, num_iterations=2, size=12
    ),
    "solar": row("SOLARPooling"),
    "smk": row("SmoothedMatchKernelPooling", constant="parallel", near=True),
    "smk-projected": row(
        "SmoothedMatchKernelPooling", projection_size=5, size=5, near=True
    ),
    "netvlad": row("NetVLADPooling", 3, size=18),
    "netvlad-projected": row("NetVLADPooling", 3, projection_size=4, size=12),
    "weldon": row("WELDONPooling", 3, 2, constant="parallel"),
    "sim-pool": row("SimPooling"),
    "attention": row("AttentionPooling", 3),
    "attention-plain": row(
        "AttentionPooling", 3, use_value_projection=False, constant="equal"
    ),
    "ot-aggregation": row("OptimalTransportPooling", 3, hidden_size=8, size=18),
    "ot-aggregation-projected": row(
        "OptimalTransportPooling",
        3,
        projection_size=4,
        hidden_size=8,
        size=12,
    ),
}
SEEING_NEIGHBORS = [n for n, row in POOLINGS.items() if row.sees_neighbors]
# One row of each class, the cheapest: compilers take seconds for a pooling.
# Plain GSP has tests of its own for that; of its variants, all in one.
COMPILED = {
    name: row
    for name, row in POOLINGS.items()
    if name
    not in (
        "gsp",
        "gsp-power",
        "gsp-max",
        "gsp-background",
        "gsp-learned",
        "average-max",
        "attention-plain",
        "netvlad",
        "ot-aggregation",
        "otk",
        "smk",
    )
}
# The length that weighs a feature has no gradient here.
SMOOTH = [name for name in POOLINGS if not name.startswith("smk")]
# With layers of Keras inside.
NORMALIZED = ("gsop", "solar", "sim-pool")
# The rows whose weights pass through everything that their classes do.
WEIGHED = (
    "gem-learned",
    "gsp-all",
    "average-max-projected",
    "cbam",
    "delf",
    "gsop",
    "otk-projected",
    "solar",
    "smk-projected",
    "netvlad-projected",
    "sim-pool",
    "attention",
    "ot-aggregation-projected",
)
# What equal features f pool to, given the layer's weights by name.
OF_EQUAL = {
    "average-max-projected": lambda f, w: (
        f @ (w["average_kernel"] + w["max_kernel"])
    ),
    "attention": lambda f, w: f @ w["value_kernel"],
    "netvlad": lambda f, w: unit(f - w["centers"]).reshape(-1),
    "ot-aggregation": lambda f, w: np.tile(unit(f), 3),
    "otk": lambda f, w: np.tile(f, 3) / np.sqrt(3),
    "otk-projected": lambda f, w: np.tile(f @ w["projection"], 3) / np.sqrt(3),
    "smk-projected": lambda f, w: (
        np.linalg.norm(f) * (f @ w["kernel"] + w["bias"])
    ),
}
# JAX compiles every operation of every test; what holds whatever computes it
# is tried on TensorFlow alone.
on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="holds on any backend"
)
every_pooling = pytest.mark.parametrize("name", POOLINGS)


def features_of(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def built(name, shape=(2, 12, CHANNELS), **kwargs):
    """The layer with weights away from their symmetric start."""
    layer = POOLINGS[name].make(**kwargs)
    layer.build(shape)
    generator = np.random.default_rng(7)
    for weight in layer.trainable_weights:
        noise = 0.2 * generator.normal(size=weight.shape)
        weight.assign(np.asarray(weight) + noise)
    return layer


def same_layer(layer, name, shape):
    """Another one with the weights of the first, built for another rank."""
    other = POOLINGS[name].make(dtype=layer.dtype_policy)
    other.build(shape)
    other.set_weights(layer.get_weights())
    return other


@on_tensorflow
@every_pooling
def test_shapes_config_and_file_survive(name, tmp_path):
    expected = POOLINGS[name]
    for shape in ((None, None, CHANNELS), (None, CHANNELS)):
        model = keras.Sequential([keras.Input(shape), expected.make(name="p")])
        assert model.output_shape == (None, expected.size)
        layer = model.layers[-1]
        symbolic = layer.compute_output_shape((None, *shape))
        assert tuple(symbolic) == (None, expected.size)
    map_shape = (4, 3, CHANNELS)
    model = keras.Sequential([keras.Input(map_shape), expected.make(name="p")])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].get_config() == model.layers[0].get_config()
    features = features_of((2, *map_shape))
    pooled = model.predict(features, verbose=0)
    assert pooled.shape == (2, expected.size)
    np.testing.assert_allclose(loaded(features), model(features))
    # A graph computes what is computed eagerly.
    np.testing.assert_allclose(pooled, model(features), rtol=1e-4, atol=1e-5)


def test_all_train_compiled_by_xla_and_every_weight_moves():
    inputs = keras.Input((4, 3, CHANNELS))
    made = {name: built(name, (2, 4, 3, CHANNELS)) for name in COMPILED}
    model = keras.Model(inputs, {n: layer(inputs) for n, layer in made.items()})
    before = {n: layer.get_weights() for n, layer in made.items()}
    # One compilation for all of them: XLA takes seconds for each.
    model.compile("sgd", "mse", jit_compile=trains_compiled(True))
    targets = {n: np.ones((8, row.size)) for n, row in COMPILED.items()}
    model.fit(features_of((8, 4, 3, CHANNELS)), targets, verbose=0)
    for name, layer in made.items():
        for old, new in zip(before[name], layer.get_weights(), strict=True):
            assert np.isfinite(new).all(), name
            assert np.abs(new - old).max() > 0, name


@on_tensorflow
@every_pooling
def test_order_of_tokens_is_irrelevant(name):
    layer = built(name)
    features = features_of((2, 12, CHANNELS))
    order = np.random.default_rng(1).permutation(12)
    np.testing.assert_allclose(
        layer(features), layer(features[:, order]), rtol=1e-4, atol=1e-5
    )


@on_tensorflow
@pytest.mark.parametrize("name", sorted(set(POOLINGS) - set(SEEING_NEIGHBORS)))
def test_feature_map_pools_as_its_tokens(name):
    layer = built(name, (2, 4, 3, CHANNELS))
    features = features_of((2, 4, 3, CHANNELS))
    other = same_layer(layer, name, (2, 12, CHANNELS))
    np.testing.assert_allclose(
        layer(features),
        other(features.reshape(2, 12, CHANNELS)),
        rtol=1e-5,
        atol=1e-6,
    )


@every_pooling
def test_masked_token_is_an_absent_token(name):
    layer = built(name)
    features = 3.0 * features_of((3, 12, CHANNELS))
    mask = np.arange(12) < 8
    pooled = layer(features, mask=np.broadcast_to(mask, (3, 12)))
    expected = layer(features[:, :8])
    np.testing.assert_allclose(pooled, expected, rtol=1e-4, atol=1e-5)


@every_pooling
def test_masked_token_may_hold_anything(name):
    layer = built(name)
    features = features_of((2, 12, CHANNELS))
    mask = np.broadcast_to(np.arange(12) < 8, (2, 12))
    expected = layer(features[:, :8])
    for token, value in enumerate((np.nan, np.inf, -np.inf, 3e38), start=8):
        features[:, token] = value

    def loss(features):
        return ops.sum(ops.square(layer(features, mask=mask)))

    pooled = layer(features, mask=mask)
    np.testing.assert_allclose(pooled, expected, rtol=1e-4, atol=1e-5)
    (found,) = gradients(loss, features)
    assert np.isfinite(found).all()
    assert not found[:, 8:].any()


@on_tensorflow
@pytest.mark.parametrize("name", ["gem", "gsp", "cbam"])
@pytest.mark.parametrize("shape", [(2, 1), (2, 11), (1, 12)])
def test_mask_of_another_size_is_refused(name, shape):
    layer = POOLINGS[name].make()
    with pytest.raises(ValueError, match=r"mask of shape \(\d, \d+\)"):
        layer(features_of((2, 12, CHANNELS)), mask=np.ones(shape, "bool"))


@on_tensorflow
@pytest.mark.parametrize("name", ["gsop", "solar"])
def test_masked_is_absent_from_the_statistics_of_a_batch(name):
    """Tokens that are masked, and samples of which all tokens are."""
    features = 3.0 * features_of((3, 12, CHANNELS))
    mask = np.arange(12) < np.array([[8], [0], [8]])
    layer = built(name)
    other = same_layer(layer, name, (2, 12, CHANNELS))
    pooled = np.asarray(layer(features, mask=mask, training=True))
    expected = other(features[::2, :8], training=True)
    np.testing.assert_allclose(pooled[::2], expected, rtol=1e-4, atol=1e-5)
    assert not pooled[1].any()
    for one, wanted in zip(
        layer.non_trainable_weights, other.non_trainable_weights, strict=True
    ):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-6)


@every_pooling
def test_fully_masked_row_is_zero_with_finite_gradient(name):
    layer = built(name)
    features = features_of((2, 12, CHANNELS))
    mask = np.ones((2, 12), bool)
    mask[1] = False

    def loss(features):
        return ops.sum(ops.square(layer(features, mask=mask)))

    pooled = np.asarray(layer(features, mask=mask))
    assert not pooled[1].any()
    np.testing.assert_allclose(pooled[:1], layer(features[:1]), rtol=1e-4)
    (found,) = gradients(loss, features)
    assert np.isfinite(found).all()
    assert not found[1].any()


@on_tensorflow
@every_pooling
def test_keras_mask_reaches_the_layer_and_ends_there(name):
    inputs = keras.Input((None, CHANNELS))
    layer = built(name)
    masked = keras.layers.Masking()(inputs)
    model = keras.Model(inputs, layer(masked))
    features = features_of((2, 12, CHANNELS))
    padded = features.copy()
    padded[:, 8:] = 0.0
    np.testing.assert_allclose(
        model(padded), layer(features[:, :8]), rtol=1e-4, atol=1e-5
    )
    assert layer.compute_mask(features, mask=np.ones((2, 12), bool)) is None


@on_tensorflow
@every_pooling
def test_equal_features(name):
    feature = 0.1 + np.abs(features_of((2, 1, CHANNELS)))
    pooled = np.asarray(built(name)(np.repeat(feature, 12, axis=1)))
    assert np.isfinite(pooled).all()
    constant = POOLINGS[name].constant
    if constant == "equal":
        np.testing.assert_allclose(pooled, feature[:, 0], rtol=1e-4)
    if constant == "parallel":
        factors = pooled / feature[:, 0]
        np.testing.assert_allclose(
            factors, np.repeat(factors[:, :1], CHANNELS, axis=1), rtol=1e-4
        )
        assert (factors > 0).all()


@on_tensorflow
@pytest.mark.parametrize("name", OF_EQUAL)
def test_equal_features_pool_to_what_is_known_of_them(name):
    layer = built(name)
    weights = {w.name: np.asarray(w, "float64") for w in layer.weights}
    feature = features_of((1, 1, CHANNELS))
    pooled = layer(np.repeat(feature, 12, axis=1))
    expected = OF_EQUAL[name](feature[0, 0].astype("float64"), weights)
    np.testing.assert_allclose(pooled[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_equals_differences_in_double_precision(
    name, double_precision
):
    if name in NORMALIZED and keras.backend.backend() == "jax":
        pytest.skip("Keras's normalizations round float64 to float32 on JAX")
    layer = built(name, dtype="float64")
    features = features_of((2, 12, CHANNELS), seed=3).astype("float64")
    upstream = np.random.default_rng(1).normal(size=(2, POOLINGS[name].size))

    def loss(features):
        return ops.sum(layer(features) * upstream)

    assert slope_errors(loss, features) < 1e-5


@on_tensorflow
@pytest.mark.parametrize("name", WEIGHED)
def test_gradient_of_the_weights_equals_differences_behind_a_mask(name):
    layer = built(name, dtype="float64")
    features = features_of((2, 12, CHANNELS), seed=3).astype("float64")
    mask = np.arange(12) < np.array([[12], [7]])
    upstream = np.random.default_rng(1).normal(size=(2, POOLINGS[name].size))
    variables = layer.trainable_weights

    def loss(*weights):
        mapping = list(zip(variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return ops.sum(layer(features, mask=mask) * upstream)

    weights = [np.asarray(variable) for variable in variables]
    assert weights[0].dtype == "float64"
    assert slope_errors(loss, *weights) < 1e-5


@on_tensorflow
@every_pooling
def test_zeros_and_equal_features_have_a_finite_gradient(name):
    layer = built(name)

    def loss(features):
        return ops.sum(ops.square(layer(features)))

    for features in (np.zeros((1, 12, CHANNELS)), np.ones((1, 12, CHANNELS))):
        (found,) = gradients(loss, features.astype("float32"))
        assert np.isfinite(found).all()


@every_pooling
@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["mixed_", ""])
def test_half_precision_rounds_only_what_comes_and_goes(name, compute, kind):
    exact = built(name)
    layer = POOLINGS[name].make(dtype=f"{kind}{compute}")
    layer.build((2, 12, CHANNELS))
    layer.set_weights(exact.get_weights())
    features = ops.cast(features_of((2, 12, CHANNELS)), compute)
    pooled = layer(features)
    assert keras.backend.standardize_dtype(pooled.dtype) == compute
    expected = ops.cast(exact(ops.cast(features, "float32")), compute)
    np.testing.assert_allclose(
        ops.cast(pooled, "float32"), ops.cast(expected, "float32"), rtol=0.01
    )


@on_tensorflow
@every_pooling
def test_samples_do_not_mix(name):
    layer = built(name)
    features = features_of((3, 12, CHANNELS))
    for mask in (None, np.broadcast_to(np.arange(12) < 8, (3, 12))):
        clean = np.asarray(layer(features, mask=mask))
        bad = features.copy()
        bad[0, 5] = np.nan
        bad[1] *= 1e4
        found = np.asarray(layer(bad, mask=mask))
        np.testing.assert_allclose(found[2], clean[2], rtol=1e-6)
        assert np.isnan(found[0]).any()
        assert np.isfinite(found[1]).all()


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="SavedModel is TensorFlow"
)
def test_all_of_them_are_exported(tmp_path):
    import tensorflow as tf

    inputs = keras.Input((None, None, CHANNELS), name="features")
    outputs = {
        name: built(name, (2, 4, 3, CHANNELS))(inputs) for name in COMPILED
    }
    model = keras.Model(inputs, outputs)
    model.export(tmp_path, verbose=False)
    features = features_of((2, 5, 3, CHANNELS))
    loaded = tf.saved_model.load(tmp_path)
    served = loaded.serve(features)
    for name, pooled in model(features).items():
        np.testing.assert_allclose(
            served[name], pooled, rtol=1e-4, atol=1e-5, err_msg=name
        )


@on_tensorflow
@pytest.mark.parametrize(
    "policy", ["float32", "mixed_bfloat16", "mixed_float16"]
)
def test_all_of_them_are_saved_with_a_mask(policy, tmp_path):
    keras.config.set_dtype_policy(policy)
    inputs = keras.Input((None, CHANNELS), name="features")
    masked = keras.layers.Masking()(inputs)
    model = keras.Model(inputs, {n: built(n)(masked) for n in COMPILED})
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    features = features_of((2, 12, CHANNELS))
    padded = features.copy()
    padded[:, 8:] = 0.0
    expected = model(features[:, :8])
    found = [loaded.predict(padded, verbose=0)]
    if policy == "float32":
        import tensorflow as tf

        model.export(tmp_path / "served", verbose=False)
        served = tf.saved_model.load(tmp_path / "served")
        found.append(served.serve(padded))
    # Half precision rounds what is pooled to 8 or 11 bits.
    tolerance = 1e-4 if policy == "float32" else 0.02
    for name, pooled in expected.items():
        for one in found:
            np.testing.assert_allclose(
                np.asarray(one[name], "float32"),
                np.asarray(pooled, "float32"),
                rtol=tolerance,
                atol=0.1 * tolerance,
                err_msg=name,
            )


@every_pooling
@pytest.mark.parametrize("shape", [(2, 6), (2, 3, 4, 5, 6)])
def test_other_ranks_are_refused(name, shape):
    with pytest.raises(ValueError, match=r"Received: shape \("):
        POOLINGS[name].make()(features_of(shape))


@every_pooling
def test_unknown_channels_are_refused(name):
    with pytest.raises(ValueError, match="channels of the features must be"):
        POOLINGS[name].make().build((None, 4, 4, None))


@every_pooling
def test_mask_on_a_map_is_refused(name):
    layer = POOLINGS[name].make()
    with pytest.raises(ValueError, match="not with a feature map"):
        layer(features_of((2, 4, 3, CHANNELS)), mask=np.ones((2, 4, 3), "bool"))


@every_pooling
def test_seen_from_a_table_it_is_public(name):
    kind = type(POOLINGS[name].make()).__name__
    assert kind in layers.__all__


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("AverageMaxPooling", {"projection_size": 0}, "projection_size=0"),
        ("CBAMPooling", {"reduction": 0}, "reduction=0"),
        ("CBAMPooling", {"kernel_size": 4}, "kernel_size=4"),
        ("DELFPooling", {"hidden_size": 0}, "hidden_size=0"),
        ("GeneralizedMaxPooling", {"ridge": 0.0}, "ridge=0.0"),
        ("GeneralizedMaxPooling", {"ridge": float("inf")}, "ridge=inf"),
        ("GeneralizedSumPooling", {"prototype_role": "x"}, "role='x'"),
        (
            "GeneralizedSumPooling",
            {"transport_ratio": 1.0, "learn_ratio": True},
            "must be below 1 with learn_ratio=True",
        ),
        (
            "GeneralizedSumPooling",
            {"transport_ratio": 1.0, "prototype_role": "background"},
            "must be below 1 with prototype_role='background'",
        ),
        ("GSoPPooling", {"attention_size": 0}, "attention_size=0"),
        ("NetVLADPooling", {"num_clusters": 0}, "num_clusters=0"),
        ("NetVLADPooling", {"projection_size": 1.5}, "projection_size=1.5"),
        ("OTKPooling", {"num_references": 0}, "num_references=0"),
        ("OTKPooling", {"num_iterations": 0}, "num_iterations=0"),
        ("OTKPooling", {"inverse_temperature": 0}, "inverse_temperature=0"),
        (
            "OTKPooling",
            {"inverse_temperature": float("inf")},
            "inverse_temperature=inf",
        ),
        ("OptimalTransportPooling", {"num_clusters": 0}, "clusters=0"),
        ("SOLARPooling", {"power": 0.5}, "power=0.5"),
        ("SOLARPooling", {"attention_size": 0}, "attention_size=0"),
        ("SimPooling", {"power": 0.5}, "power=0.5"),
        ("SmoothedMatchKernelPooling", {"kernel_size": 2}, "kernel_size=2"),
        ("WELDONPooling", {"num_largest": 0}, "num_largest=0"),
        ("WELDONPooling", {"num_smallest": True}, "num_smallest=True"),
        ("AttentionPooling", {"num_queries": 0}, "num_queries=0"),
    ],
)
def test_bad_argument_is_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(layers, kind)(**arguments)
