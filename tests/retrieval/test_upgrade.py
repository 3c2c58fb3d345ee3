"""upgrade: maps, mapped search, resuming, cut-over."""

import shutil

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from keras_gsp.retrieval import (
    ExactIndex,
    MatchThreshold,
    Retriever,
    SearchIndex,
    Upgrade,
    upgrade,
)
from keras_gsp.retrieval.space import check_space
from keras_gsp.retrieval.upgrade import SpaceMap, fitted_map
from tests.retrieval.index.test_indexes import every_engine, made, same
from tests.retrieval.test_retriever import means


def encoder(seed, size, inputs=12):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(size),
            keras.layers.UnitNormalization(),
        ]
    )


RNG = np.random.default_rng(0)
LABELS = np.repeat(np.arange(24), 4)
IMAGES = RNG.normal(size=(24, 12))[LABELS] + 0.3 * RNG.normal(size=(96, 12))
IMAGES = IMAGES.astype("float32")
IDS = np.array([f"i{i:02}" for i in range(96)])
DATA = IMAGES, LABELS


def images_of(ids):
    return IMAGES[[int(one[1:]) for one in ids]]


@pytest.fixture(scope="module")
def encoders():
    return encoder(0, 12), encoder(1, 8)


def started(encoders, **options):
    index = ExactIndex.from_encoder(encoders[0], DATA, ids=IDS)
    return upgrade(index, *encoders, DATA, **options)


def test_a_map_is_near_the_rotation_and_the_least_squares():
    rng = np.random.default_rng(0)
    source, new = rng.normal(size=(2, 400, 5))
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0][:5]
    space_map = fitted_map(source, 3 * source @ rotation, 0.3)
    np.testing.assert_allclose(space_map(new), 3 * new @ rotation, atol=1e-5)
    # The gradient of both penalties is zero.
    target = source @ rng.normal(size=(5, 3)) + rng.normal(size=(400, 3))
    weights = fitted_map(source, target, 0.7).weights
    left, _, right = np.linalg.svd(source.T @ target, full_matrices=False)
    turned = source @ (left @ right)
    scale = (turned * target).sum() / (turned * turned).sum()
    penalty = 0.7 * np.square(source).sum() / 5
    slope = source.T @ (source @ weights - target)
    pull = penalty * (scale * left @ right - weights)
    np.testing.assert_allclose(slope, pull, rtol=1e-6)
    unit = target / np.linalg.norm(target, axis=1, keepdims=True)
    lengths = np.linalg.norm(fitted_map(source, unit, 0.3)(new), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-5)  # on the sphere


@every_engine
def test_mapped_queries_are_answered_by_the_old_index(kind, tmp_path):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(60, 4)).astype("float32")
    ids = np.array([f"i{i:02}" for i in range(60)])
    facts = {"year": np.arange(60) % 7, "price": np.arange(60) / 7}
    old = made(kind, tmp_path, rows, np.arange(60), ids, facts)
    old.match = MatchThreshold(1.5, 0.1, 0.9, 10, 10)
    weights = rng.normal(size=(3, 4)).astype("float32")
    both = Upgrade(old, ExactIndex(), SpaceMap(weights))
    assert isinstance(both, SearchIndex) and both.embedding_size == 3
    queries = rng.normal(size=(8, 3)).astype("float32")
    for options in (
        {"exclude_ids": list(ids[:8]), "where": {"year": [3, 4]}},
        {"group_by": "year", "within": 2.0},
        {"diversity": 0.3},
    ):
        found = both.search(queries, 9, **options)
        expected = old.search(queries @ weights, 9, **options)
        same(found, expected)
        np.testing.assert_array_equal(found.is_match, expected.is_match)
    things = queries.reshape(4, 2, 3)
    same(both.search(things, 5), old.search(things @ weights, 5))
    # What comes is searched at once and embedded already; what goes is gone.
    with pytest.raises(ValueError, match="finite"):
        both.upsert(queries[:1] / 0, [7], ["x"], {"year": [1], "price": [2]})
    added = {"year": [1, 2], "price": [3, 4]}
    both.upsert(queries[:2], [7, 8], ["new", "i03"], added)
    assert both.new.items(["new"])[3]["price"].dtype == "float64"
    assert both.search(queries[0], 1).ids == "new" and len(both) == 61
    assert both.count({"year": 1}) == 10 and len(both.left()) == 59
    assert both.search(queries[4], 1, like=["new"]).ids != "new"
    assert both.delete(["new", "i59", "unknown"]) == 2
    assert len(both) == 59 == len(both.ids()) and both.new.ids() == "i03"


def test_an_upgrade_ends_in_the_index_of_the_new_encoder(encoders):
    upgraded = started(encoders)
    queries = encoders[1].predict_on_batch(IMAGES)
    facts = upgraded.certificate
    assert facts["mapped"] > 0.5 * facts["old"]
    assert facts["cost"]["difference"] == pytest.approx(
        facts["mapped"] - facts["old"]
    )
    assert upgraded.embed(images_of, num_items=40) == 56
    with pytest.raises(RuntimeError, match="56 left; call `embed`"):
        upgraded.cut_over()
    assert len(upgraded) == 96
    assert upgraded.embed(images_of) == 0
    index = upgraded.cut_over()
    check_space(encoders[1], index)
    same = ExactIndex.from_encoder(encoders[1], DATA, ids=IDS)
    found, expected = index.search(queries, 5), same.search(queries, 5)
    assert (found.ids == expected.ids).all()


def test_a_killed_upgrade_goes_on(encoders, tmp_path):
    upgraded = started(encoders)
    upgraded.embed(images_of, num_items=30)
    upgraded.new.save(tmp_path / "new")
    again = started(encoders, into=ExactIndex.load(tmp_path / "new"))
    assert set(again.left()) == set(upgraded.left())
    assert len(again.left()) == 66
    again.new.upsert(again.new.items(again.new.ids()[:1])[0], [0], ["gone"])
    with pytest.raises(ValueError, match=r"1 others: ..gone.., which"):
        started(encoders, into=again.new)


def test_a_retriever_is_upgraded_with_its_files(tmp_path):
    rng = np.random.default_rng(0)
    for label in range(14):
        color = rng.integers(30, 220, (1, 1, 3))
        for number in range(3):
            noise = rng.integers(-20, 20, (20, 20, 3))
            path = tmp_path / f"c{label}" / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray((color + noise).astype("uint8")).save(path)
    old, new = means(), means(1 / 100)
    retriever = Retriever.from_folder(tmp_path, old)
    upgraded = retriever.upgrade(new)
    file = tmp_path / "c3" / "1.png"
    assert upgraded.search(file, k=1).labels.tolist() == [["c3"]]
    assert upgraded.index.embed(num_items=10) == 32
    name = upgraded.index.left()[0]
    (tmp_path / name).write_bytes(b"no image")
    with pytest.warns(UserWarning, match=f"1 of .*{name}"):
        assert upgraded.index.embed() == 1
    shutil.copy(file, tmp_path / name)
    cut = gsp.data.Preprocessing(16, 16)
    left = upgraded.index.embed(  # batches of files, too
        lambda ids: gsp.data.image_batches(
            [str(tmp_path / name) for name in ids], preprocessing=cut
        )
    )
    assert left == 0
    upgraded.index = upgraded.index.cut_over()
    expected = Retriever.from_folder(tmp_path, new).search(file, k=5)
    found = upgraded.search(file, k=5)
    np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)
    # The file was changed after it was embedded first.
    assert upgraded.sync().changed == (name,)
