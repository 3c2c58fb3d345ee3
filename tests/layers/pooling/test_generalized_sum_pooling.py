"""Generalized sum pooling: contract, values, laws, gradients, errors."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_gsp.layers import GeneralizedSumPooling
from tests.compiled import trains_compiled
from tests.gradients import central_differences, gradients
from tests.ops import transport_oracle as oracle

SHAPES = [(3, 5, 4, 6), (3, 20, 6)]


def features_of(shape, seed=0, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def naive_pooling(features, prototypes, ratio, eps):
    """One sample in float64: features (n, c), prototypes (m, c)."""
    projected = [
        vectors / np.maximum(1, np.linalg.norm(vectors, axis=1))[:, None]
        for vectors in (features, prototypes)
    ]
    costs = np.linalg.norm(projected[1][:, None] - projected[0], axis=-1)
    residual, plan = oracle.partial_transport(costs, ratio, eps)
    weights = (1.0 / len(features) - residual) / ratio
    return weights @ features, plan.sum(axis=1) / ratio


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ratio", [0.05, 0.3, 1.0])
def test_equals_naive_loop(shape, ratio):
    features = features_of(shape)
    layer = GeneralizedSumPooling(7, ratio, 8.0, return_histogram=True)
    pooled, histogram = layer(features)
    prototypes = np.asarray(layer.prototypes, "float64")
    for sample in range(shape[0]):
        flat = features[sample].reshape(-1, shape[-1]).astype("float64")
        expected = naive_pooling(flat, prototypes, ratio, 8.0)
        np.testing.assert_allclose(pooled[sample], expected[0], atol=1e-5)
        np.testing.assert_allclose(histogram[sample], expected[1], atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_ratio_one_is_average_pooling(shape):
    features = features_of(shape)
    pooled = GeneralizedSumPooling(7, 1.0)(features)
    axes = tuple(range(1, len(shape) - 1))
    np.testing.assert_allclose(pooled, features.mean(axis=axes), atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_and_plans_have_their_sums(shape):
    features = features_of(shape)
    layer = GeneralizedSumPooling(7, 0.3, return_histogram=True)
    _, histogram = layer(features)
    weights = np.asarray(layer.pooling_weights(features))
    plan = np.asarray(layer.transport_plan(features))
    assert weights.shape == shape[:-1]
    assert plan.shape == (*shape[:-1], 7)
    axes = tuple(range(1, weights.ndim))
    np.testing.assert_allclose(weights.sum(axes), 1.0, rtol=1e-5)
    np.testing.assert_allclose(plan.sum((*axes, -1)), 0.3, rtol=1e-5)
    np.testing.assert_allclose(np.sum(histogram, axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(plan.sum(-1) / 0.3, weights, rtol=1e-5)


def test_pooled_is_the_weighted_sum_of_features():
    features = features_of(SHAPES[0])
    layer = GeneralizedSumPooling(7, 0.2, 10.0)
    pooled = layer(features)
    weights = np.asarray(layer.pooling_weights(features))
    expected = np.einsum("bhw,bhwc->bc", weights, features)
    np.testing.assert_allclose(pooled, expected, atol=1e-5)


def test_order_of_pixels_is_irrelevant():
    features = features_of(SHAPES[0])
    layer = GeneralizedSumPooling(7)
    turned = features.transpose(0, 2, 1, 3)[:, ::-1]
    np.testing.assert_allclose(layer(features), layer(turned), atol=1e-6)


def test_feature_map_equals_its_tokens():
    features = features_of(SHAPES[0])
    layer = GeneralizedSumPooling(7)
    tokens = features.reshape(3, 20, 6)
    np.testing.assert_allclose(layer(features), layer(tokens), atol=1e-6)


@pytest.mark.parametrize("power", [1.0, 3.0])
def test_masked_tokens_are_left_out(power):
    tokens = np.abs(features_of(SHAPES[1]))
    layer = GeneralizedSumPooling(7, 0.3, power=power, return_histogram=True)
    mask = np.zeros((3, 20), bool)
    mask[:, :11] = True
    pooled, histogram = layer(tokens, mask=mask)
    expected = layer(tokens[:, :11])
    np.testing.assert_allclose(pooled, expected[0], atol=1e-5)
    np.testing.assert_allclose(histogram, expected[1], atol=1e-5)
    weights = layer.pooling_weights(tokens, mask=mask)
    assert not np.asarray(weights)[:, 11:].any()


def test_keras_mask_reaches_the_layer():
    inputs = keras.Input((None, 6))
    layer = GeneralizedSumPooling(7)
    model = keras.Model(inputs, layer(keras.layers.Masking()(inputs)))
    tokens = features_of(SHAPES[1])
    padded = tokens.copy()
    padded[:, 11:] = 0.0
    np.testing.assert_allclose(model(padded), layer(tokens[:, :11]), atol=1e-6)


def test_fully_masked_row_is_zero_with_finite_gradient():
    tokens = features_of(SHAPES[1])
    layer = GeneralizedSumPooling(7)
    mask = np.ones((3, 20), bool)
    mask[1] = False
    layer.build(tokens.shape)

    def loss(tokens):
        return ops.sum(ops.square(layer(tokens, mask=mask)))

    assert not np.asarray(layer(tokens, mask=mask))[1].any()
    assert np.isfinite(gradients(loss, tokens)[0]).all()


def test_power_is_generalised_mean_of_weighted_features():
    features = np.abs(features_of(SHAPES[0]))
    layer = GeneralizedSumPooling(7, 0.3, power=3.0)
    pooled = layer(features)
    weights = np.asarray(layer.pooling_weights(features))[..., None]
    scaled = np.maximum(20 * weights * features, 1e-6).reshape(3, 20, 6)
    expected = np.mean(scaled**3, axis=1) ** (1 / 3)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5)


@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_pooled_where_features_are_matched(shape, power):
    features, values = features_of(shape), features_of((*shape[:-1], 9), 1)
    layer = GeneralizedSumPooling(
        7, 0.3, power=power, add_max=True, return_histogram=True
    )
    pooled, histogram = layer(features, values=values)
    weights = np.asarray(layer.pooling_weights(features)).reshape(3, 20)
    flat = values.reshape(3, 20, 9).astype("float64")
    for sample in range(3):
        terms = weights[sample][:, None] * flat[sample]
        if power > 1.0:
            terms = np.maximum(20 * terms, 1e-6) ** power / 20
        expected = terms.sum(axis=0) ** (1 / power) + flat[sample].max(axis=0)
        np.testing.assert_allclose(pooled[sample], expected, atol=1e-4)
    np.testing.assert_allclose(histogram, layer(features)[1], atol=1e-6)


def test_values_that_are_the_features_change_nothing():
    features = features_of(SHAPES[1])
    mask = np.arange(20) < np.array([[20], [7], [0]])
    layer = GeneralizedSumPooling(7)
    np.testing.assert_array_equal(
        layer(features, mask=mask, values=features), layer(features, mask=mask)
    )


def test_values_of_masked_tokens_do_not_count():
    features, values = features_of(SHAPES[1]), features_of((3, 20, 9), 1)
    mask = np.arange(20) < np.array([[20], [7], [3]])
    layer = GeneralizedSumPooling(7, power=2.0)
    expected = layer(features, mask=mask, values=values)
    values[~mask] = 100.0
    np.testing.assert_allclose(
        layer(features, mask=mask, values=values), expected, rtol=1e-6
    )


def test_both_features_and_values_have_gradients(double_precision):
    features = features_of((2, 5, 6), dtype="float64")
    values = features_of((2, 5, 3), 1, "float64")
    layer = GeneralizedSumPooling(4, 0.4, dtype="float64")
    layer.build(features.shape)

    def loss(features, values):
        return ops.sum(ops.square(layer(features, values=values)))

    found = gradients(loss, features, values)
    for one, expected in zip(
        found, central_differences(loss, features, values), strict=True
    ):
        assert np.abs(one).max() > 1e-3
        np.testing.assert_allclose(one, expected, atol=1e-6)


def test_a_model_with_values_has_their_shape_and_survives_saving(tmp_path):
    inputs = keras.Input((None, 4, 6))
    values = keras.layers.Conv2D(9, 1)(inputs)
    outputs = GeneralizedSumPooling(7, return_histogram=True)(
        inputs, values=values
    )
    model = keras.Model(inputs, outputs)
    assert [tuple(one.shape) for one in outputs] == [(None, 9), (None, 7)]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    features = features_of(SHAPES[0])
    for one, other in zip(model(features), loaded(features), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("masks", ["both", "features", "values"])
def test_keras_mask_reaches_the_layer_beside_values(masks):
    inputs = keras.Input((None, 6))
    masked = keras.layers.Masking()(inputs)
    layer = GeneralizedSumPooling(7, power=2.0)
    outputs = layer(
        inputs if masks == "values" else masked,
        values=inputs if masks == "features" else masked,
    )
    tokens = features_of(SHAPES[1])
    padded = tokens.copy()
    padded[:, 11:] = 0.0
    short = tokens[:, :11]
    np.testing.assert_allclose(
        keras.Model(inputs, outputs)(padded),
        layer(short, values=short),
        atol=1e-6,
    )


def test_tokens_that_one_mask_leaves_out_do_not_count():
    features, values = features_of(SHAPES[1]), features_of((3, 20, 9), 1)
    layer = GeneralizedSumPooling(7)
    first, second = (np.arange(20) < 15), (np.arange(20) >= 4)
    found = layer(
        features,
        values=values,
        features_mask=np.broadcast_to(first, (3, 20)),
        values_mask=np.broadcast_to(second, (3, 20)),
    )
    expected = layer(features[:, 4:15], values=values[:, 4:15])
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_masked_features_and_values_may_hold_anything(power):
    features, values = features_of(SHAPES[1]), features_of((3, 20, 9), 1)
    mask = np.broadcast_to(np.arange(20) < 11, (3, 20))
    layer = GeneralizedSumPooling(7, power=power, add_max=True)
    expected = layer(features[:, :11], values=values[:, :11])
    for token, value in ((11, np.nan), (12, np.inf), (13, -np.inf)):
        features[:, token] = values[:, token] = value
    found = layer(features, mask=mask, values=values)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for one in (
        layer.pooling_weights(features, mask),
        layer.residual(features, mask),
        layer.transport_plan(features, mask),
    ):
        assert np.isfinite(np.asarray(one)).all()
        assert not np.asarray(one)[:, 11:].any()

    def loss(features, values):
        return ops.sum(ops.square(layer(features, mask=mask, values=values)))

    for gradient in gradients(loss, features, values):
        assert np.isfinite(gradient).all()
        assert not gradient[:, 11:].any()


@pytest.mark.parametrize("shape", [(3, 19, 6), (2, 20, 6), (3, 5, 4, 6)])
def test_values_that_lie_elsewhere_are_refused(shape):
    with pytest.raises(ValueError, match="`values` must have the shape"):
        GeneralizedSumPooling(7)(
            features_of(SHAPES[1]), values=features_of(shape)
        )


def test_large_power_neither_overflows_nor_underflows():
    features = np.abs(features_of(SHAPES[0])) * 100
    features[..., 0] = 0.0
    layer = GeneralizedSumPooling(7, power=30.0)

    def loss(features):
        return ops.sum(layer(features))

    assert np.isfinite(np.asarray(layer(features))).all()
    assert np.isfinite(gradients(loss, features)[0]).all()


@pytest.mark.parametrize("ratio", [0.3, 1.0])
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_gradient_equals_central_differences(ratio, power, double_precision):
    features = 0.4 + 0.3 * features_of((2, 6, 3), dtype="float64")
    layer = GeneralizedSumPooling(
        4, ratio, 6.0, power=power, return_histogram=True, dtype="float64"
    )
    layer.build(features.shape)
    generator = np.random.default_rng(1)
    upstream = generator.normal(size=(2, 3)), generator.normal(size=(2, 4))

    def loss(features, prototypes):
        layer.prototypes.assign(prototypes)
        pooled, histogram = layer(features)
        return ops.sum(pooled * upstream[0]) + ops.sum(histogram * upstream[1])

    def loss_of_features(features):
        pooled, histogram = layer(features)
        return ops.sum(pooled * upstream[0]) + ops.sum(histogram * upstream[1])

    prototypes = 0.5 * generator.normal(size=(4, 3))
    layer.prototypes.assign(prototypes)
    (found,) = gradients(loss_of_features, features)
    expected = central_differences(loss, features, prototypes)
    np.testing.assert_allclose(found, expected[0], atol=1e-7)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss_of_features(features)
        (found,) = tape.gradient(value, layer.trainable_weights)
        np.testing.assert_allclose(found, expected[1], atol=1e-7)


def test_coinciding_feature_and_prototype_have_finite_gradient():
    layer = GeneralizedSumPooling(4, return_histogram=True)
    features = 0.1 * features_of((2, 9, 6))
    layer.build(features.shape)
    layer.prototypes.assign(features[0, :4])
    zeros = np.concatenate([features, np.zeros((1, 9, 6), "float32")])

    def loss(features):
        pooled, histogram = layer(features)
        return ops.sum(ops.square(pooled)) + ops.sum(ops.square(histogram))

    assert np.isfinite(gradients(loss, zeros)[0]).all()


def test_huge_and_nan_features_stay_in_their_sample():
    features = features_of(SHAPES[0])
    clean = np.asarray(GeneralizedSumPooling(7, name="a")(features))
    layer = GeneralizedSumPooling(7)
    layer.build(features.shape)
    clean = np.asarray(layer(features))
    bad = features.copy()
    bad[0, 0, 0] = np.nan
    bad[1, 0, 0] = 1e20
    found = np.asarray(layer(bad))
    np.testing.assert_array_equal(found[2], clean[2])
    assert np.isnan(found[0]).any()
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_policies_solve_in_float32(policy):
    features = features_of(SHAPES[0]).astype("float16").astype("float32")
    layer = GeneralizedSumPooling(7, return_histogram=True, dtype=policy)
    exact = GeneralizedSumPooling(7, return_histogram=True)
    pooled, histogram = layer(features)
    exact.build(features.shape)
    exact.prototypes.assign(layer.prototypes)
    expected = exact(features)
    compute = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(pooled.dtype) == compute
    assert keras.backend.standardize_dtype(histogram.dtype) == "float32"
    # Inputs are rounded to 8 (bfloat16) or 11 (float16) bits of mantissa.
    error = np.abs(ops.cast(pooled, "float32") - expected[0]).max()
    assert error < 0.02
    np.testing.assert_allclose(np.sum(histogram, -1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fits_with_and_without_xla(policy, jit_compile):
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input((5, 4, 6))])
    model.add(GeneralizedSumPooling(7))
    model.add(keras.layers.Dense(2, dtype="float32"))
    model.compile("sgd", "mse", jit_compile=trains_compiled(jit_compile))
    before = np.array(model.layers[0].prototypes)
    model.fit(features_of((8, 5, 4, 6)), np.ones((8, 2)), verbose=0)
    assert np.abs(np.array(model.layers[0].prototypes) - before).max() > 0


def test_unknown_spatial_sizes_give_symbolic_and_eager_shape():
    inputs = keras.Input((None, None, 6))
    outputs = GeneralizedSumPooling(7, return_histogram=True)(inputs)
    assert [tuple(output.shape) for output in outputs] == [
        (None, 6),
        (None, 7),
    ]
    model = keras.Model(inputs, outputs)
    for height, width in ((3, 5), (7, 2)):
        pooled, histogram = model(features_of((2, height, width, 6)))
        assert pooled.shape == (2, 6)
        assert histogram.shape == (2, 7)


def test_keras_file_round_trip(tmp_path):
    model = keras.Sequential([keras.Input((5, 4, 6))])
    model.add(
        GeneralizedSumPooling(
            7, 0.2, 8.0, power=2.0, prototype_regularizer="l2", name="gsp"
        )
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    features = features_of((2, 5, 4, 6))
    np.testing.assert_array_equal(model(features), loaded(features))
    assert loaded.layers[0].get_config() == model.layers[0].get_config()


def test_adapt_covers_the_features():
    generator = np.random.default_rng(0)
    centers = 0.9 * np.eye(6)[:4]
    features = centers[generator.integers(0, 4, (30, 9))]
    features = features + 0.01 * generator.normal(size=features.shape)
    layer = GeneralizedSumPooling(4)
    layer.adapt(features.astype("float32"))
    distances = np.linalg.norm(
        np.asarray(layer.prototypes)[:, None] - centers, axis=-1
    )
    assert sorted(distances.argmin(axis=1)) == [0, 1, 2, 3]


def test_adapt_is_seeded_and_bounded():
    features = features_of((8, 20, 6))
    layers = [GeneralizedSumPooling(4) for _ in range(3)]
    for layer, seed in zip(layers, (1, 1, 2), strict=True):
        layer.adapt(features, max_features=12, seed=seed)
    first, second, third = (np.array(layer.prototypes) for layer in layers)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - third).max() > 0


def test_adapt_with_too_few_features_is_refused():
    with pytest.raises(ValueError, match="Received: 6 features"):
        GeneralizedSumPooling(7).adapt(features_of((2, 3, 6)))


@pytest.mark.parametrize("ratio", [0.0, 1.5])
def test_ratio_outside_range_is_refused(ratio):
    with pytest.raises(ValueError, match=f"transport_ratio={ratio}"):
        GeneralizedSumPooling(transport_ratio=ratio)


@pytest.mark.parametrize("count", [0, -1, 2.5])
def test_bad_number_of_prototypes_is_refused(count):
    with pytest.raises(ValueError, match=f"num_prototypes={count}"):
        GeneralizedSumPooling(count)


def test_bad_temperature_and_power_are_refused():
    with pytest.raises(ValueError, match="inverse_temperature=0"):
        GeneralizedSumPooling(inverse_temperature=0)
    with pytest.raises(ValueError, match="power=0.5"):
        GeneralizedSumPooling(power=0.5)


@pytest.mark.parametrize("shape", [(2, 6), (2, 3, 4, 5, 6)])
def test_other_ranks_are_refused(shape):
    with pytest.raises(ValueError, match=r"Received: shape \("):
        GeneralizedSumPooling(7)(features_of(shape))


def test_unknown_channels_are_refused():
    with pytest.raises(ValueError, match="channels of the features"):
        GeneralizedSumPooling(7).build((None, 4, 4, None))


def test_residual_and_plan_share_out_all_mass():
    features = features_of(SHAPES[0])
    layer = GeneralizedSumPooling(7, 0.3)
    residual = np.asarray(layer.residual(features))
    assert residual.shape == (3, 5, 4)
    np.testing.assert_allclose(residual.sum((1, 2)), 0.7, rtol=1e-5)
    moved = np.asarray(layer.transport_plan(features)).sum(-1)
    np.testing.assert_allclose(moved + residual, 1 / 20, rtol=1e-4)


def test_background_prototypes_pool_what_they_do_not_take():
    features = features_of(SHAPES[0])
    layer = GeneralizedSumPooling(7, 0.3, 8.0, prototype_role="background")
    pooled = layer(features)
    weights = np.asarray(layer.residual(features)) / 0.7
    np.testing.assert_allclose(
        layer.pooling_weights(features), weights, rtol=1e-5
    )
    expected = np.einsum("bhw,bhwc->bc", weights, features)
    np.testing.assert_allclose(pooled, expected, atol=1e-5)


def test_add_max_adds_each_channels_maximum():
    features = features_of(SHAPES[0])
    layer = GeneralizedSumPooling(7, add_max=True)
    plain = GeneralizedSumPooling(7)
    plain.build(features.shape)
    layer.build(features.shape)
    plain.prototypes.assign(layer.prototypes)
    expected = np.asarray(plain(features)) + features.max((1, 2))
    np.testing.assert_allclose(layer(features), expected, atol=1e-5)


def test_learned_ratio_starts_where_it_was_set_and_has_the_right_slope(
    double_precision,
):
    features = 0.4 + 0.3 * features_of((2, 6, 3), dtype="float64")
    layer = GeneralizedSumPooling(
        4, 0.3, 6.0, learn_ratio=True, dtype="float64"
    )
    layer.build(features.shape)
    plain = GeneralizedSumPooling(4, 0.3, 6.0, dtype="float64")
    plain.build(features.shape)
    plain.prototypes.assign(layer.prototypes)
    np.testing.assert_allclose(layer(features), plain(features), rtol=1e-6)
    assert abs(float(layer.ratio) - 0.3) < 1e-7
    upstream = np.random.default_rng(1).normal(size=(2, 3))

    def value(logit):
        layer.ratio_logit.assign(logit)
        return ops.sum(layer(features) * upstream)

    (expected,) = central_differences(value, np.array(-0.5))
    layer.ratio_logit.assign(-0.5)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = ops.sum(layer(features) * upstream)
        found = tape.gradient(loss, layer.ratio_logit.value)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_learned_ratio_close_to_one_keeps_its_digits():
    features = features_of(SHAPES[0])
    layer = GeneralizedSumPooling(
        7, 0.99999, learn_ratio=True, prototype_role="background"
    )
    # 1 - 0.99999 in float32 has lost the third digit of its inverse.
    weights = np.asarray(layer.pooling_weights(features))
    np.testing.assert_allclose(weights.sum((1, 2)), 1.0, rtol=1e-4)


def test_unary_costs_are_those_of_the_transport_problem():
    features = features_of((2, 20, 6)).astype("float64")
    layer = GeneralizedSumPooling(7, 0.3, 8.0, use_unary_costs=True)
    layer.build(features.shape)
    direction = np.random.default_rng(2).normal(size=6) / 4
    layer.leaving_direction.assign(direction)
    weights = np.asarray(layer.pooling_weights(features.astype("float32")))
    prototypes = np.asarray(layer.prototypes, "float64")
    prototypes /= np.maximum(1, np.linalg.norm(prototypes, axis=1))[:, None]
    for sample, found in zip(features, weights, strict=True):
        inside = sample / np.maximum(1, np.linalg.norm(sample, axis=1))[:, None]
        costs = np.linalg.norm(prototypes[:, None] - inside, axis=-1)
        # rho_j pays for leaving: the same plan as if moving it saved that.
        costs = costs - (inside @ direction)[None]
        residual, _ = oracle.partial_transport(costs, 0.3, 8.0)
        np.testing.assert_allclose(found, (1 / 20 - residual) / 0.3, atol=1e-5)
