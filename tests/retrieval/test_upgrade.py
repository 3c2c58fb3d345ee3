"""upgrade: maps, side-by-side search, resuming, cut-over, refusals."""

import shutil

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from keras_gsp.retrieval import (
    ExactIndex,
    Retriever,
    SearchIndex,
    Upgrade,
    upgrade,
)
from keras_gsp.retrieval.space import check_space
from keras_gsp.retrieval.upgrade import SpaceMap, fitted_map, logistic_line
from tests.retrieval.index.test_indexes import ENGINES, made
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


def test_the_line_is_the_logistic_regression():
    rng = np.random.default_rng(2)
    distances = rng.uniform(0, 3, 20000)
    chance = 1 / (1 + np.exp(-(2.0 - 3.0 * distances)))
    a, b = logistic_line(distances, rng.random(20000) < chance)
    assert a == pytest.approx(2.0, abs=0.15)
    assert b == pytest.approx(-3.0, abs=0.15)


@pytest.mark.parametrize("kind", ENGINES)
def test_both_spaces_answer_as_one_index(kind, tmp_path):
    rng = np.random.default_rng(3)
    old = rng.normal(size=(60, 4)).astype("float32")
    ids = np.array([f"i{i:02}" for i in range(60)])
    years = {"year": np.arange(60) % 7}
    new = rng.normal(size=(30, 3)).astype("float32")
    moved = rng.permutation(60)[:30]
    weights = rng.normal(size=(3, 4)).astype("float32")
    both = Upgrade(
        made(kind, tmp_path, old, np.arange(60), ids, years),
        ExactIndex(new, moved, ids[moved], attributes={"year": moved % 7}),
        SpaceMap(weights, line=(0.1, 2.0)),
    )
    assert isinstance(both, SearchIndex)
    assert len(both) == 60 and both.embedding_size == 3
    queries = rng.normal(size=(8, 3)).astype("float32")
    mapped = queries @ weights
    distances = 0.1 + 2 * np.linalg.norm(mapped[:, None] - old, axis=2)
    near = np.linalg.norm(queries[:, None] - new, axis=2)
    distances[:, moved] = near
    own = list(ids[:8])
    for where, mask in ((None, True), ({"year": 3}, np.arange(60) % 7 == 3)):
        expected = np.where(mask, distances, np.inf)
        expected[np.arange(8), np.arange(8)] = np.inf
        found = both.search(queries, 50, exclude_ids=own, where=where)
        order = np.argsort(expected, axis=1)
        count = np.isfinite(expected).sum(axis=1).clip(max=50)
        np.testing.assert_array_equal(found.counts, count)
        for row in range(8):
            best = order[row, : count[row]]
            assert found.ids[row, : count[row]].tolist() == ids[best].tolist()
            np.testing.assert_allclose(
                found.distances[row, : count[row]], expected[row, best], 1e-5
            )
        assert both.count(where) == (60 if where is None else 8 + (60 % 7 > 3))
    by_year = both.search(queries, 4, exclude_ids=own, group_by="year")
    for row, groups in enumerate(by_year.groups):
        in_order = np.argsort(distances[row])
        in_order = in_order[in_order != row]
        years = list(dict.fromkeys((in_order % 7).tolist()))
        assert groups.tolist() == years[:4]
        first = [in_order[in_order % 7 == year][0] for year in years[:4]]
        assert by_year.ids[row].tolist() == ids[first].tolist()
    liked = both.search(like=[ids[moved[1]]], k=3)
    assert liked.counts.tolist() == [3] and ids[moved[1]] not in liked.ids
    exact = both.search_exactly(queries, 5)
    assert (exact.ids == both.search(queries, 5).ids).all()
    assert both.delete([ids[moved[0]], "unknown"]) == 1
    assert len(both) == 59 and ids[moved[0]] not in both.ids()


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
    # What comes meanwhile goes into the new space.
    again.upsert(again.new.items([again.new.ids()[0]])[0], [99], ["extra"])
    assert len(again) == 97 and len(again.old) == 96


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
