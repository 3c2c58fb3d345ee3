"""Readers in processes beside a writer that replaces the index, and kills.

python -m pytest -m slow tests/endurance/test_live_index.py --seconds 120
python -m pytest -m slow tests/endurance/test_live_index.py -k killed --kills 20
"""

import multiprocessing
import os
import random
import signal
import time

import keras
import numpy as np
import pytest
from PIL import Image

from keras_gsp.retrieval import ExactIndex, Retriever

READERS, ITEMS, SIZE = 8, 2000, 32
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["keras_gsp.retrieval"])


def index_of(turn):
    """All rows are those of one turn, and so are all labels."""
    rows = np.random.default_rng(turn).normal(size=(ITEMS, SIZE))
    ids = [f"{turn}/{number}" for number in range(ITEMS)]
    return ExactIndex(rows, [turn] * ITEMS, ids)


def check(index):
    """Raises unless the index answers as one that was written."""
    turn = int(index.gallery.labels[0])
    rows = np.random.default_rng(turn).normal(size=(ITEMS, SIZE))
    near = index.search(rows[::400], 2)
    expected = [f"{turn}/{number}" for number in range(0, ITEMS, 400)]
    assert near.ids[:, 0].tolist() == expected
    assert (near.labels == turn).all() and (near.distances[:, 0] < 1e-5).all()
    return turn


def read_until(path, is_over, answers, number):
    count, turns, failed = 0, set(), []
    while not is_over.is_set():
        try:
            index = ExactIndex.load(path, mmap=number % 2 == 1)
            turns.add(check(index))
        except (AssertionError, OSError, RuntimeError, ValueError) as error:
            failed.append(f"{type(error).__name__}: {error}")
        count += 1
    answers.put((count, len(turns), failed[:3]))


def write_until(path, is_over, answers, pause):
    turn, sizes = 1, []
    path.with_name("writes").touch()
    while not is_over.is_set():
        index_of(turn).save(path, overwrite=True)
        sizes.append(num_bytes(path))
        turn += 1
        time.sleep(pause)
    answers.put(("saved", turn, max(sizes)))


def num_bytes(path):
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(folder, name))
            except FileNotFoundError:
                continue  # of a version that just went
    return total


def started(function, *arguments):
    process = PROCESSES.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


@pytest.mark.slow
def test_eight_readers_beside_a_writer_never_fail(tmp_path, request):
    seconds = request.config.getoption("--seconds")
    path, is_over, answers = (
        tmp_path / "i",
        PROCESSES.Event(),
        PROCESSES.Queue(),
    )
    index_of(0).save(path)
    alone = num_bytes(path)
    processes = [started(write_until, path, is_over, answers, 0.5)]
    processes += [
        started(read_until, path, is_over, answers, number)
        for number in range(READERS)
    ]
    time.sleep(seconds + 60)  # nine processes import on few cores
    is_over.set()
    ended = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    (_, num_saved, most), *_ = [one for one in ended if one[0] == "saved"]
    readers = [one for one in ended if one[0] != "saved"]
    loads = sum(count for count, _, _ in readers)
    print(f"{num_saved} saves, {loads} loads, at most {most / alone:.1f} x")
    assert [failed for _, _, failed in readers if failed] == []
    assert num_saved > 2 and loads > READERS
    # A version for each reader at most; after a last save, one.
    assert most <= alone * (READERS + 2)
    index_of(0).save(path, overwrite=True)
    assert num_bytes(path) <= 1.1 * alone


@pytest.mark.slow
def test_a_killed_writer_leaves_an_index_that_opens(tmp_path, request):
    path, draw = tmp_path / "index", random.Random(0)
    index_of(0).save(path)
    alone, kills = num_bytes(path), request.config.getoption("--kills")
    is_over, answers, seen = PROCESSES.Event(), PROCESSES.Queue(), set()
    for _ in range(10 * kills):
        writer = started(write_until, path, is_over, answers, 0.0)
        while not (mark := path.with_name("writes")).exists():
            time.sleep(0.001)  # it imports
        mark.unlink()
        time.sleep(draw.uniform(0.0, 0.2))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        seen.add(check(ExactIndex.load(path)))
    print(f"{10 * kills} kills, {len(seen)} different indexes were found")
    assert len(seen) > 1
    index_of(0).save(path, overwrite=True)
    assert num_bytes(path) <= 1.1 * alone


def change(photos, draw):
    """Adds, replaces, deletes, damages or repairs a file."""
    file = photos / "ab"[draw.randrange(2)] / f"{draw.randrange(20)}.png"
    action = draw.choice(["write", "write", "damage", "delete"])
    if action == "write":
        size = draw.randrange(3, 9), 5
        color = tuple(draw.randrange(256) for _ in range(3))
        Image.new("RGB", size, color).save(file)
    elif action == "damage":
        file.write_bytes(b"no image" * draw.randrange(1, 9))
    else:
        file.unlink(missing_ok=True)


def follow_until(path, photos, is_over, answers, seed):
    """Changes files, one while they are embedded, and syncs and saves."""
    draw, embed = random.Random(seed), Retriever._read_again
    retriever = Retriever.load(path, folder=photos)

    def beside_changes(self, *arguments):
        failed = embed(self, *arguments)
        change(photos, draw)
        return failed

    Retriever._read_again = beside_changes
    path.with_name("writes").touch()
    while not is_over.is_set():
        for _ in range(3):
            change(photos, draw)
        retriever.sync()
        retriever.save(path, overwrite=True)


@pytest.mark.slow
def test_sync_repairs_what_a_killed_one_left(tmp_path, request):
    path, photos, draw = tmp_path / "c", tmp_path / "photos", random.Random(0)
    for name in "ab":
        (photos / name).mkdir(parents=True)
    for _ in range(60):
        change(photos, draw)
    layers = [keras.Input((4, 4, 3)), keras.layers.Flatten()]
    Retriever.from_folder(photos, keras.Sequential(layers)).save(path)
    kills, seen = request.config.getoption("--kills"), set()
    is_over, answers = PROCESSES.Event(), PROCESSES.Queue()
    for seed in range(kills):
        writer = started(follow_until, path, photos, is_over, answers, seed)
        while not (mark := path.with_name("writes")).exists():
            time.sleep(0.001)  # it imports
        mark.unlink()
        time.sleep(draw.uniform(0.0, 1.0))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        retriever = Retriever.load(path, folder=photos)
        seen.add(str(retriever.sync()))
        fresh = Retriever.from_folder(photos, retriever.encoder)
        ids = sorted(fresh.index.ids().tolist())
        assert sorted(retriever.index.ids().tolist()) == ids
        rows = [one.index.items(ids)[0] for one in (retriever, fresh)]
        np.testing.assert_allclose(*rows, atol=1e-5)
    print(f"{kills} kills, {len(seen)} different repairs")
    assert len(seen) > 1
