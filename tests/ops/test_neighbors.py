"""The nearest neighbor search against a sort of all float64 distances."""

import keras
import numpy as np
import pytest

from keras_gsp.ops import neighbors
from keras_gsp.ops.neighbors import NearestItems, array_items


def galleries():
    draw = np.random.default_rng(0)
    yield "random", draw.normal(size=(700, 5)).astype("float32")
    yield "whole numbers", draw.integers(-2, 3, (500, 2)).astype("float32")
    few = draw.normal(size=(4, 97)).astype("float32")
    yield "copies of four", few[draw.integers(4, size=2000)]
    half = draw.normal(size=(2000, 16)).astype("float32")
    half[draw.permutation(2000)[:1000]] = half[0]
    yield "half of them equal", half
    # Differences that float32 does not show.
    near = draw.normal(size=(2000, 16))
    near[::2] = near[0] + 1e-7 * draw.normal(size=(1000, 16))
    yield "nearly equal", near
    far = draw.normal(size=(1000, 8)).astype("float32")
    far[0] *= 1e4
    yield "one far away", far
    yield "one item", far[:1]
    tiny = draw.normal(size=(200, 24)).astype("float32")
    yield "tiny", tiny * 1e-22
    yield "squares that an accelerator takes for zero", tiny * 1e-19


def sorted_whole(queries, gallery, count):
    gaps = queries[:, None].astype("float64") - gallery
    squares = np.square(gaps).sum(axis=-1)
    items = np.broadcast_to(np.arange(len(gallery)), squares.shape)
    order = np.lexsort((items, squares), axis=1)[:, :count]
    missing = count - order.shape[1]
    return np.pad(order, ((0, 0), (0, missing)), constant_values=-1)


WAYS = {
    "host": {},
    "host, small blocks": {"PRODUCT_NUMBERS": 2000, "QUERY_ROWS": 7},
    "accelerator": {
        "has_accelerator": lambda: True,
        "DEVICE_LEAST_WORK": 0,
        "DEVICE_ROWS": 300,
        "DEVICE_QUERIES": 17,
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_finds_what_a_sort_of_all_distances_finds(way, monkeypatch):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(neighbors, name, value)
    for name, gallery in galleries():
        for count in (1, 9, 60):
            found = array_items(gallery)(gallery[:30], count)
            expected = sorted_whole(gallery[:30], gallery, count)
            np.testing.assert_array_equal(found, expected, f"{name} {count}")


@pytest.mark.parametrize("way", WAYS)
def test_an_origin_a_filter_and_few_items(way, monkeypatch):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(neighbors, name, value)
    draw = np.random.default_rng(1)
    gallery = 4096 + draw.normal(size=(300, 6)).astype("float32")
    origin = gallery.mean(axis=0)
    passing = np.flatnonzero(draw.uniform(size=300) < 0.1)

    def blocks(num_rows):
        for start in range(0, len(passing), num_rows):
            positions = passing[start : start + num_rows]
            rows = gallery[positions] - origin
            yield rows, np.square(rows).sum(axis=1) / 2, positions

    nearest = NearestItems(blocks, gallery.__getitem__, origin)
    found = nearest(gallery[:20], 50)
    places = sorted_whole(gallery[:20], gallery[passing], 50)
    expected = np.where(places < 0, -1, passing[places])
    np.testing.assert_array_equal(found, expected)
    passing = passing[:0]
    nearest = NearestItems(blocks, gallery.__getitem__, origin)
    assert (nearest(gallery[:2], 3) == -1).all()


def test_a_gallery_too_large_for_the_accelerator_stays_on_the_host(monkeypatch):
    monkeypatch.setattr(neighbors, "has_accelerator", lambda: True)
    monkeypatch.setattr(neighbors, "DEVICE_LEAST_WORK", 0)
    monkeypatch.setattr(neighbors, "DEVICE_MOST_NUMBERS", 100)
    monkeypatch.setattr(NearestItems, "_of_device", None)  # cannot be called
    gallery = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
    found = array_items(gallery)(gallery, 2)
    np.testing.assert_array_equal(found[:, 0], np.arange(60))


def test_a_cpu_is_no_accelerator(monkeypatch):
    if keras.backend.backend() == "torch":  # Keras lists no devices there.
        import torch

        # As beside a GPU, with KERAS_TORCH_DEVICE=cpu.
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        on_cpu = keras.ops.ones(1).device.type == "cpu"
    else:
        devices = keras.distribution.list_devices()
        on_cpu = all(device.startswith("cpu") for device in devices)
    assert neighbors.has_accelerator() is not on_cpu
