"""verify_export: canaries that moved are named, those of others refused."""

import numpy as np
import pytest

from keras_gsp.retrieval import (
    ExactIndex,
    Retriever,
    export_retriever,
    verify_export,
)
from keras_gsp.retrieval.serving.artefact_facts import Canaries
from keras_gsp.storage.checksums import write_checksums
from keras_gsp.storage.whole import current_folder
from tests.compiled import on_tensorflow
from tests.retrieval.test_retriever import means, photos  # noqa: F401


def test_canaries_that_moved_are_named(photos, tmp_path):  # noqa: F811
    encoder, path = means(), tmp_path / "saved"
    retriever = Retriever.from_folder(photos, encoder)
    retriever.save(path)
    path = current_folder(path)
    # As a library that computes something else: the same weights and layers.
    canaries = path / "canaries.npz"
    with np.load(canaries) as read:
        arrays = dict(read)
    arrays["embeddings"][1] += 0.1
    np.savez(canaries, **arrays)
    write_checksums(path)
    with pytest.raises(RuntimeError, match="1 of 4 that moved: cat/1.png: 0"):
        verify_export(path)
    canaries.unlink()
    with pytest.raises(ValueError, match="canaries.npz: missing"):
        verify_export(path)


def test_canaries_move_by_a_share_of_their_length():
    rows = 1e-4 * np.eye(3)
    canaries = Canaries(["a", "b", "c"], [], rows)
    assert canaries.check(rows * 1.0005) < 1e-3
    with pytest.raises(RuntimeError, match="1 of 3 that moved: b: 1.4"):
        canaries.check(rows[[0, 2, 2]])


@on_tensorflow
def test_an_export_refuses_canaries_that_do_not_fit(photos, tmp_path):  # noqa: F811
    encoder = means()
    retriever = Retriever.from_folder(photos, encoder)
    file = photos / "cat" / "1.png"
    for canaries, error, words in [
        ({"cat/9.png": file}, ValueError, "cat/9.png"),
        ({"cat/2.png": file}, RuntimeError, "1 of 1 that moved: cat/2.png"),
        ({}, ValueError, "`canaries` must be image files"),
    ]:
        with pytest.raises(error, match=words):
            export_retriever(
                encoder, retriever.index, tmp_path / "x", canaries=canaries
            )
    assert not (tmp_path / "x").exists()
    bare = ExactIndex(np.eye(48)[:3])
    export_retriever(encoder, bare, tmp_path / "x")
    assert verify_export(tmp_path / "x")["num_canaries"] == 0
