"""Two looks: find the subject by the pooling's weights, and look again."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from keras_gsp.data.preprocessing import preprocessing_of
from keras_gsp.models.two_looks import Boxes, Crop


def rng():
    return np.random.default_rng(0)


def encoder_of(pooling=None, side=16, size=6, layer=None, **options):
    backbone = keras.Sequential(
        [
            keras.Input((side, side, 3)),
            layer or keras.layers.Conv2D(8, 2, strides=2),
        ]
    )
    if pooling is None:
        pooling = gsp.layers.GeneralizedSumPooling(
            4, transport_ratio=0.1, name="pooling"
        )
    return gsp.models.build_encoder(
        backbone, embedding_size=size, pooling=pooling, **options
    )


def boxes_on(weights, image_size=(60, 60), *, window=None, mass=0.8):
    weights = np.asarray(weights, "float32")
    images = np.zeros((len(weights), *image_size, 3), "float32")
    return np.asarray(Boxes(window, mass, name="boxes")([images, weights]))


def spot(cells, *positions):
    weights = np.zeros((1, *cells))
    for row, column in positions:
        weights[0, row, column] = 1.0 / len(positions)
    return weights


def test_box_is_a_square_around_the_mass():
    for positions, image_size, expected in [
        # The one cell, half a cell at either end.
        ([(4, 7)], (60, 60), [0.35, 0.65, 0.55, 0.85]),
        # At the border it keeps its size.
        ([(0, 9)], (60, 60), [0.0, 0.8, 0.2, 1.0]),
        # Square in pixels.
        ([(4, 4), (4, 6)], (40, 80), [0.025, 0.3375, 0.875, 0.7625]),
    ]:
        found = boxes_on(spot((10, 10), *positions), image_size)
        np.testing.assert_allclose(found, [expected], atol=1e-3)


@pytest.mark.parametrize("cells", [(7, 7), (14, 10)])
@pytest.mark.parametrize("mass", [0.5, 0.8, 1.0])
def test_mass_that_is_spread_over_everything_gives_the_image(cells, mass):
    weights = np.full((1, *cells), 1.0 / np.prod(cells))
    found = boxes_on(weights, (40, 90), mass=mass)
    np.testing.assert_allclose(found, [[0.0, 0.0, 1.0, 1.0]], atol=1e-5)


def test_box_holds_the_central_mass():
    weights = rng().random((20, 9, 9)) ** 6
    weights /= weights.sum((1, 2), keepdims=True)
    for mass in (0.5, 0.8):
        for one, (top, left, bottom, right) in zip(
            weights, boxes_on(weights, mass=mass) * 9, strict=True
        ):
            for masses, low, high in (
                (one.sum(1), top, bottom),
                (one.sum(0), left, right),
            ):
                cells = np.arange(9)
                share = np.minimum(high, cells + 1) - np.maximum(low, cells)
                assert (masses * share.clip(0, 1)).sum() >= mass - 1e-5


@pytest.mark.parametrize("cells, window", [((4, 4), 0.5), ((7, 5), 0.45)])
def test_window_holds_most_mass_of_all_windows(cells, window):
    weights = rng().random((5, *cells)) ** 4
    found = boxes_on(weights, window=window)
    np.testing.assert_allclose(found[:, 2:] - found[:, :2], window, atol=1e-5)

    def share(count, start):
        low, high = np.arange(count), np.arange(count) + 1
        high = np.minimum(high, (start + window) * count)
        return (high - np.maximum(low, start * count)).clip(0)

    def held(one, top, left):
        return share(cells[0], top) @ one @ share(cells[1], left)

    for one, box in zip(weights, found, strict=True):
        best = held(one, *box[:2])
        for top in np.linspace(0.0, 1.0 - window, 12):
            for left in np.linspace(0.0, 1.0 - window, 12):
                assert held(one, top, left) <= best + 1e-4


def test_a_coarse_map_is_warned_of():
    with pytest.warns(UserWarning, match="4 x 4 places"):
        gsp.models.TwoLooks(encoder_of(side=8))


def test_crops_are_those_of_pillow():
    images = rng().integers(0, 256, (3, 40, 52, 3)).astype("uint8")
    # Enlarged, reduced to a third, and stretched.
    boxes = [[0.1, 0.2, 0.35, 0.4], [0.0, 0.0, 1.0, 1.0], [0.3, 0.05, 0.9, 0.5]]
    for size in ((13, 17), (20, 20)):
        found = Crop(size, name="crops")(
            [images.astype("float32"), np.array(boxes, "float32")]
        )
        for image, box, crop in zip(images, boxes, found, strict=True):
            top, left, bottom, right = box * np.array([40, 52, 40, 52])
            for channel in range(3):
                # Of floats: Pillow rounds twice in 8 bits.
                expected = Image.fromarray(
                    image[..., channel].astype("float32")
                ).resize(
                    size[::-1], Image.BILINEAR, box=(left, top, right, bottom)
                )
                np.testing.assert_allclose(
                    crop[..., channel], expected, atol=2e-2
                )


def test_embedding_combines_both_looks():
    first, second = encoder_of(), encoder_of(side=20)
    images = rng().random((3, 32, 32, 3)).astype("float32")
    one = np.asarray(first(Crop((16, 16), name="whole")(images)))
    crops = gsp.models.TwoLooks(first, second).crops(images)
    assert crops.shape == (3, 20, 20, 3)
    two = np.asarray(second(crops))
    for combine, expected in {
        "first": one,
        "second": two,
        "sum": one + two,
        "concatenate": np.concatenate([one, two], axis=1),
    }.items():
        looks = gsp.models.TwoLooks(first, second, combine=combine)
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(looks(images), expected, atol=1e-5)
    # As models are built of the lists `inputs`.
    listed = [keras.Model(x.inputs, x.output) for x in (first, second)]
    looks = gsp.models.TwoLooks(*listed, combine="concatenate")
    np.testing.assert_allclose(looks(images), expected, atol=1e-5)


def test_boxes_follow_the_pooling_and_crops_the_boxes():
    first = encoder_of()
    looks = gsp.models.TwoLooks(first)
    images = rng().random((3, 24, 40, 3)).astype("float32")
    features = keras.Model(first.input, first.get_layer("pooling").input)(
        Crop((16, 16), name="whole")(images)
    )
    weights = first.get_layer("pooling").pooling_weights(features)
    boxes = looks.boxes(images)
    np.testing.assert_allclose(boxes, boxes_on(weights, (24, 40)), atol=1e-5)
    crops = Crop((16, 16), name="crops")([images, boxes])
    np.testing.assert_allclose(looks.crops(images), crops, atol=1e-5)


@pytest.mark.parametrize("own_second", [False, True])
def test_saved_and_loaded_it_answers_alike(tmp_path, own_second):
    second = encoder_of() if own_second else None
    looks = gsp.models.TwoLooks(
        encoder_of(),
        second,
        window=0.5,
        combine="concatenate",
        preprocessing=gsp.data.Preprocessing(32, 36),
    )
    images = rng().random((2, 32, 32, 3)).astype("float32")
    looks.save(tmp_path / "looks.keras")
    loaded = keras.saving.load_model(tmp_path / "looks.keras")
    assert len(loaded.weights) == len(looks.weights)
    assert loaded.preprocessing == looks.preprocessing
    np.testing.assert_allclose(loaded(images), looks(images), atol=1e-6)
    truncated = gsp.models.truncate_encoder(looks, 4)
    truncated.save(tmp_path / "truncated.keras")
    loaded = keras.saving.load_model(tmp_path / "truncated.keras")
    expected = np.asarray(looks(images))[:, :4]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(loaded(images), expected, atol=1e-6)


@pytest.mark.parametrize("is_nested", [False, True])
def test_saved_encoders_still_share_their_backbone(tmp_path, is_nested):
    given = keras.Input((16, 16, 3))
    backbone = keras.layers.Conv2D(8, 2, strides=2)
    if is_nested:
        backbone = keras.Sequential([given, backbone])
    features = backbone(given)
    first, second = (
        keras.Model(given, pooling(features))
        for pooling in (
            gsp.layers.GeneralizedSumPooling(5),
            gsp.layers.GeneralizedMeanPooling(),
        )
    )
    looks = gsp.models.TwoLooks(first, second)
    images = rng().random((2, 24, 32, 3)).astype("float32")
    looks.save(tmp_path / "looks.keras")
    loaded = keras.saving.load_model(tmp_path / "looks.keras")
    assert loaded.second.layers[1] is loaded.first.layers[1]
    assert len(loaded.weights) == len(looks.weights)
    np.testing.assert_allclose(loaded(images), looks(images), atol=1e-6)
    inside = keras.Sequential([given, second])
    with pytest.raises(ValueError, match="share layers inside of layers"):
        gsp.models.TwoLooks(first, inside).save(tmp_path / "x.keras")


def test_a_model_that_holds_looks_is_not_compiled_for_each_size():
    model = keras.Sequential([gsp.models.TwoLooks(encoder_of())])
    assert not model.jit_compile


def test_both_looks_are_trained():
    # Attention looks with the mean of its queries.
    first = encoder_of(gsp.layers.AttentionPooling(2, name="pooling"))
    looks = gsp.models.TwoLooks(first, encoder_of())
    learner = gsp.models.MetricLearner(looks)
    learner.compile("sgd", loss=gsp.losses.ContrastiveLoss())
    before = [np.array(weight) for weight in looks.trainable_weights]
    images = rng().random((8, 24, 24, 3)).astype("float32")
    learner.fit(images, np.arange(8) // 2, verbose=0)
    for weight, old in zip(looks.trainable_weights, before, strict=True):
        assert np.abs(np.asarray(weight) - old).max() > 0.0, weight.path


def test_behind_another_layer_it_still_takes_originals():
    cut = gsp.data.Preprocessing(16, 20, background=(1, 2, 3))
    looks = gsp.models.TwoLooks(encoder_of(preprocessing=cut))
    layer = keras.layers.Dense(3)
    for model in (
        keras.Sequential([keras.Input((None, None, 3)), looks, layer]),
        keras.Model(looks.inputs, layer(looks.outputs[0])),
    ):
        found = preprocessing_of(model)
        assert found.image_size is None and found.background == (1, 2, 3)
    with pytest.raises(NotImplementedError, match="Put it into a `keras.Seq"):
        keras.models.clone_model(model)
