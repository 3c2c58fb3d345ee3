"""Each measure of dominant prototypes against a loop; pictures; errors."""

from dataclasses import replace
from itertools import combinations

import keras
import numpy as np
import pytest
from PIL import Image

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

import keras_gsp as gsp
from tests.training.datasets import layouts
from training.datasets import collage, glyphs
from training.datasets.collage import cell_of_picture, compose_collages
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.pictures.palette import PROTOTYPES
from training.pictures.pooling_weights import pooling_weights, prototype_maps
from training.research.experiments import distracted, few_prototypes
from training.research.experiments.convex_hulls import area, hull, overlap
from training.research.experiments.dominant_prototypes import (
    MEASURES,
    Settings,
    _png,
    active_facts,
    check_settings,
    dominated_mass,
    draw,
    histogram_facts,
    in_plane,
    mass_on_subject,
    table,
)
from training.research.results.markdown import mean_and_deviation
from training.research.results.records import plain


def random_maps(count=5, rows=3, columns=4, prototypes=3, seed=0):
    shape = count, rows, columns, prototypes
    maps = np.random.default_rng(seed).random(shape)
    return maps / maps.sum(axis=(1, 2, 3), keepdims=True)


def distance(one, other):
    """Square root of the Jensen-Shannon divergence in bits."""
    middle = (one + other) / 2.0
    divergence = 0.0
    for p in (one, other):
        for share, mixed in zip(p, middle, strict=True):
            if share > 0.0:
                divergence += 0.5 * share * np.log2(share / mixed)
    return np.sqrt(max(divergence, 0.0))


def test_dominated_mass_is_that_of_a_loop():
    maps = random_maps()
    expected = np.zeros((5, 3))
    for image, row, column in np.ndindex(maps.shape[:3]):
        place = maps[image, row, column]
        expected[image, np.argmax(place)] += place.sum()
    np.testing.assert_allclose(dominated_mass(maps), expected)
    np.testing.assert_allclose(expected.sum(axis=1), 1.0)


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (3, 5)])
def test_mass_on_the_subject_is_that_of_a_loop(rows, columns):
    maps = random_maps(8, rows, columns)
    cells = np.arange(8) % 4
    masses = np.zeros(8)
    for image, row, column in np.ndindex(maps.shape[:3]):
        # Centers, in units of the canvas; 0.5 belongs to the later cell.
        below, right = (
            (row + 0.5) / rows >= 0.5,
            (column + 0.5) / columns >= 0.5,
        )
        if cells[image] == 2 * below + right:
            masses[image] += maps[image, row, column].sum()
    np.testing.assert_allclose(mass_on_subject(maps, cells), masses.mean())


def test_facts_of_histograms_are_those_of_a_loop():
    histograms = np.random.default_rng(1).dirichlet(np.ones(4), size=7)
    histograms[3] = [1.0, 0.0, 0.0, 0.0]
    histograms[5] = histograms[4]
    found = histogram_facts(histograms)
    evenness, main = [], []
    for row in histograms:
        positive = [share for share in row if share > 0.0]
        evenness.append(-sum(s * np.log(s) for s in positive) / np.log(4))
        main.append(int(np.argmax(row)))
    distances = [distance(a, b) for a, b in combinations(histograms, 2)]
    np.testing.assert_allclose(found["evenness"], np.mean(evenness))
    np.testing.assert_allclose(found["class_distance"], np.mean(distances))
    assert found["main_prototypes"] == len(set(main))
    shared = [main.count(one) > 1 for one in main]
    np.testing.assert_allclose(found["shared_main"], np.mean(shared))


def test_even_histograms_are_even_and_classes_with_their_own_far_apart():
    even = histogram_facts(np.full((3, 8), 0.125))
    np.testing.assert_allclose(even["evenness"], 1.0)
    np.testing.assert_allclose(even["class_distance"], 0.0, atol=1e-7)
    own = histogram_facts(np.eye(4))
    np.testing.assert_allclose(own["evenness"], 0.0)
    np.testing.assert_allclose(own["class_distance"], 1.0)
    assert own["main_prototypes"] == 4 and own["shared_main"] == 0.0


def is_inside(points, corners):
    """Which points are on the left of every side."""
    inside = np.ones(len(points), bool)
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        across, offsets = end - start, points - start
        inside &= across[0] * offsets[:, 1] >= across[1] * offsets[:, 0]
    return inside


def test_overlaps_of_active_sets_and_hulls_are_those_of_a_loop():
    rng = np.random.default_rng(2)
    places = rng.random((6, 2))
    active = rng.random((9, 6)) < 0.6
    active[0] = [True, True, False, False, False, False]
    active[1] = active[2]
    axis = (np.arange(400) + 0.5) / 400
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    covered = [
        is_inside(grid, hull(places[row])) if row.sum() >= 3 else None
        for row in active
    ]
    sets, hulls = [], []
    for one, other in combinations(range(9), 2):
        both, either = active[one] & active[other], active[one] | active[other]
        sets.append(both.sum() / either.sum())
        if covered[one] is not None and covered[other] is not None:
            shared = np.sum(covered[one] & covered[other])
            hulls.append(shared / np.sum(covered[one] | covered[other]))
    found = active_facts(active, places)
    np.testing.assert_allclose(found["active"], active.sum() / 9)
    np.testing.assert_allclose(found["active_overlap"], np.mean(sets))
    has_area = np.mean([one is not None for one in covered])
    np.testing.assert_allclose(found["hulls"], has_area)
    # The grid has 160,000 points, some of them at an edge.
    np.testing.assert_allclose(found["hull_overlap"], np.mean(hulls), atol=5e-3)


def test_classes_without_area_have_no_overlap_of_hulls():
    places = np.random.default_rng(0).random((4, 2))
    few = np.array([[True, True, False, False], [True, True, True, False]])
    found = active_facts(few, places)
    assert found["hulls"] == 0.5 and found["hull_overlap"] is None
    on_a_line = active_facts(np.ones((2, 4), bool), places * [1.0, 0.0])
    assert on_a_line["hulls"] == 0.0 and on_a_line["hull_overlap"] is None


def test_overlap_of_squares_is_known():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(area(square), 1.0)
    np.testing.assert_allclose(overlap(square, square), 1.0)
    np.testing.assert_allclose(overlap(square, square + 0.5), 0.25 / 1.75)
    np.testing.assert_allclose(overlap(square, 0.5 * square), 0.25)
    assert overlap(square, square + 2.0) == 0.0


def test_the_plane_holds_all_of_prototypes_in_a_plane():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(8, 2)) @ rng.normal(size=(2, 5)) + 1.0
    mean, axes, share = in_plane(flat)
    np.testing.assert_allclose(share, 1.0)
    np.testing.assert_allclose((flat - mean) @ axes @ axes.T + mean, flat)


def test_maps_are_the_parts_of_weights_and_histogram():
    images = keras.Input((8, 8, 3), dtype="uint8")
    pixels = keras.layers.Rescaling(1.0 / 255.0)(images)
    features = keras.layers.Conv2D(5, 3)(pixels)
    pooled, histogram = gsp.layers.GeneralizedSumPooling(
        4, return_histogram=True, name="pooling"
    )(features)
    encoder = keras.Model(images, [pooled, histogram])
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), "uint8")
    maps = prototype_maps(encoder, pixels)
    assert maps.shape == (3, 6, 6, 4)
    # Float32 throughout.
    for found, expected in (
        (maps.sum(axis=-1), pooling_weights(encoder, pixels)),
        (maps.sum(axis=(1, 2)), encoder(pixels)[1]),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_letters_are_found_in_their_cells():
    sizes = {
        "train_classes": 3,
        "train_samples": 4,
        "validation_classes": 3,
        "test_classes": 4,
        "test_samples": 5,
    }
    # Alone on the canvas, the letter is where the ink is.
    splits = glyphs.load(**sizes, has_distractors=False)
    for side in ("train", "test"):
        cells = glyphs.letter_cells(side, **sizes, has_distractors=False)
        images = getattr(splits, side).images
        size = glyphs.CELL
        for image, cell in zip(images, cells, strict=True):
            row, column = size * (cell // 2), size * (cell % 2)
            own = image[row : row + size, column : column + size]
            assert own.min() < 128
            assert np.sum(image < 255) == np.sum(own < 255)


def test_a_picture_is_found_in_its_collage():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 4, 6, 3), "uint8")
    pictures, backgrounds = np.split(pixels, [5])
    made = compose_collages(pictures, backgrounds, seed=3)
    cells = cell_of_picture(made, pictures)
    for canvas, picture, cell in zip(made, pictures, cells, strict=True):
        row, column = 4 * (cell // 2), 6 * (cell % 2)
        found = canvas[row : row + 4, column : column + 6]
        np.testing.assert_array_equal(found, picture)
    with pytest.raises(ValueError, match="must each be a cell"):
        cell_of_picture(made, pictures[::-1])


def test_cells_follow_the_images_looked_at(monkeypatch):
    settings = replace(Settings(), classes="seen")
    labels = np.repeat([0, 1], 4)

    def marked(first):
        # Every image carries its number; the cell follows from it.
        values = np.arange(first, first + 8, dtype="uint8")
        return np.broadcast_to(values[:, None, None, None], (8, 2, 2, 3))

    sides = {
        side: ImageSet(labels, names, images=marked(first))
        for side, names, first in (("train", "ab", 0), ("test", "cd", 8))
    }
    splits = RetrievalSplits(name="marked", **sides)
    monkeypatch.setattr(
        few_prototypes, "load_splits", lambda _, distilled: splits
    )
    monkeypatch.setattr(
        few_prototypes,
        "subject_cells",
        lambda _, side: sides[side].images[:, 0, 0, 0] % 4,
    )
    known, examined = few_prototypes.known_and_examined(settings)
    assert (
        known.class_sizes.tolist() == examined.class_sizes.tolist() == [2] * 4
    )
    every = np.concatenate([known.images, examined.images])[:, 0, 0, 0]
    assert sorted(every) == list(range(16))
    np.testing.assert_array_equal(
        few_prototypes.examined_subject_cells(settings),
        examined.images[:, 0, 0, 0] % 4,
    )


def whole(data_dir):
    return replace(
        Settings(), classes="seen", distilled=True, data_dir=data_dir
    )


def test_a_folder_with_sides_is_known_and_examined_as_it_is(tmp_path):
    """No class distracts, no image is on both sides, none is left out."""
    layouts.folder(tmp_path / "train", "abc", images=4)
    layouts.folder(tmp_path / "test", "abc", images=2)
    sides = few_prototypes.known_and_examined(whole(tmp_path))
    assert [side.class_names for side in sides] == [("a", "b", "c")] * 2
    assert [side.class_sizes.tolist() for side in sides] == [[4] * 3, [2] * 3]
    assert all(side.images.shape[1:] == (32, 32, 3) for side in sides)
    assert few_prototypes.examined_subject_cells(whole(tmp_path)) is None


@pytest.mark.parametrize("sides", [(), ("train", "validation")])
def test_half_of_each_class_is_examined_where_a_folder_has_no_test(
    tmp_path, sides
):
    for root in sides or (".",):
        layouts.folder(tmp_path / root, "abc", images=4)
    known, examined = few_prototypes.known_and_examined(whole(tmp_path))
    names = [f"{side}/{name}" for side in sides for name in "abc"]
    assert known.class_names == examined.class_names == tuple(names or "abc")
    assert set(known.class_sizes) == set(examined.class_sizes) == {2}


def test_letters_without_distractors_stay_in_their_cells():
    settings = replace(Settings(), distilled=True, smoke=True)
    known, examined = few_prototypes.known_and_examined(settings)
    assert known.num_classes == 4
    cells = few_prototypes.examined_subject_cells(settings)
    expected = few_prototypes.examined_subject_cells(
        replace(settings, distilled=False)
    )
    np.testing.assert_array_equal(cells, expected)
    assert len(cells) == len(examined)


def test_table_and_pictures_of_measured_numbers(tmp_path):
    rng = np.random.default_rng(0)
    maps = random_maps(8, 3, 3, prototypes=4)
    panel = {
        "histograms": rng.dirichlet(np.ones(4), size=3),
        "dominated": rng.dirichlet(np.ones(4), size=3),
        "dominant": maps.argmax(axis=-1),
        "weights": maps.sum(axis=-1),
        "plane_share": 0.5,
        "places": rng.random((4, 2)),
        # A point, a segment and a triangle.
        "active": np.arange(4) <= np.arange(3)[:, None],
        "points": rng.random((3, 5, 2)),
    }
    image = np.full((12, 12, 3), 200, "uint8")
    facts = {name: mean_and_deviation([0.25, 0.5]) for name in MEASURES}
    results = plain(
        {
            "rows": [
                {"method": "GSP"} | facts,
                {"method": "GSP+ZSR"} | facts | {"hull_overlap": None},
            ],
            "first_seed": {
                "classes": ["a", "b", "c"],
                "images": [_png(image)] * 8,
                "panels": {"GSP": panel, "GSP+ZSR": panel},
            },
        }
    )
    assert "| overlap of hulls | 0.375 ± 0.177 | none |" in table(results)
    draw(tmp_path / "new" / "prototypes.png", results)
    names = "prototypes", "prototypes_classes", "prototypes_hulls"
    for name in names:
        drawn = Image.open(tmp_path / "new" / f"{name}.png")
        assert drawn.size[0] > drawn.size[1] > 400


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_prototypes": 1}, "num_prototypes=1"),
        ({"num_prototypes": 9}, "num_prototypes=9"),
        ({"active_share": 0.0}, "active_share=0.0"),
        ({"active_share": 0.2}, "active_share=0.2"),
    ],
)
def test_settings_that_cannot_be_measured_or_drawn_are_refused(
    changes, message
):
    check_settings(Settings())
    with pytest.raises(ValueError, match=message):
        check_settings(replace(Settings(), **changes))


def test_every_prototype_has_a_color_of_its_own():
    assert len(set(PROTOTYPES)) == len(PROTOTYPES) == 8


def test_cells_of_a_folder_are_those_of_its_pictures(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (90, 4, 4, 3), "uint8")
    images = ImageSet(np.repeat(np.arange(6), 15), "abcdef", images=pixels)
    monkeypatch.setattr(collage, "load_pictures", lambda *_: images)
    settings = replace(Settings(), data_dir=tmp_path)
    pictures = distracted.load_splits(settings, distilled=True)
    made = distracted.load_splits(settings)
    for side in ("train", "test"):
        cells = distracted.subject_cells(settings, side)
        for canvas, picture, cell in zip(
            getattr(made, side).images,
            getattr(pictures, side).images,
            cells,
            strict=True,
        ):
            row, column = 4 * (cell // 2), 4 * (cell % 2)
            found = canvas[row : row + 4, column : column + 4]
            np.testing.assert_array_equal(found, picture)


def test_a_smoke_run_is_told_where_the_letters_stand():
    settings = replace(Settings(), smoke=True)
    cells = distracted.subject_cells(settings, "test")
    assert cells.shape == (len(distracted.load_splits(settings).test),)
