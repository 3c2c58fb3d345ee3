"""The same command searches a folder and keeps its collection in step."""

import pytest

from keras_gsp.retrieval import Retriever
from keras_gsp.storage.one_process import one_process
from tests.training.datasets import layouts
from tests.training.embedding.test_embed import encoder, images  # noqa: F401
from training import search


def test_a_second_search_is_in_step_with_the_folder(
    encoder,  # noqa: F811
    images,  # noqa: F811
    tmp_path,
    capsys,
    monkeypatch,
):
    def printed(*options):
        words = f"{path} {query} --data-dir {images} {' '.join(options)}"
        search.main(words.split())
        return capsys.readouterr().out.splitlines()

    path, query = tmp_path / "collection", tmp_path / "query.png"
    layouts.picture(query, 60, size=(13, 9))
    lines = printed("--encoder", str(encoder))
    assert lines[0] == f"{path}: 10 added, 1 failed"
    assert lines[1].startswith("b/3.png: unreadable") and len(lines) == 13
    layouts.picture(images / "b" / "3.png", 50, size=(12, 9))
    layouts.picture(images / "b" / "5.png", 60, size=(13, 9))
    (images / "a" / "0.png").unlink()
    lines = printed("--top", "1", "--picture", str(tmp_path / "grid.png"))
    assert lines[0].endswith(
        "1 added, 1 embedded again, 1 deleted, 8 unchanged"
    )
    assert lines[2].split() == ["1", "0.0000", "b", "b/5.png"]
    assert (tmp_path / "grid.png").stat().st_size > 1000
    with monkeypatch.context() as patched:
        patched.setattr(Retriever, "save", None)  # Nothing changed.
        assert printed()[0].endswith(": 10 unchanged")
    with one_process(path), pytest.raises(SystemExit, match="Only one process"):
        printed()
    # Before anything is embedded.
    (path / "mine.txt").write_text("mine")
    monkeypatch.setattr(Retriever, "sync", None)
    with pytest.raises(SystemExit, match="mine.txt"):
        printed()


def test_what_an_interrupted_search_embedded_is_saved(
    encoder,  # noqa: F811
    images,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    from keras_gsp.retrieval import retriever

    calls, put = [], Retriever._put

    def interrupted(self, *items):
        put(self, *items)
        calls.append(items)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(retriever, "SYNCED", 4)
    monkeypatch.setattr(Retriever, "_put", interrupted)
    words = f"{tmp_path / 'c'} {images / 'a' / '0.png'} --data-dir {images}"
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        search.main([*words.split(), "--encoder", str(encoder)])
    again = Retriever.load(tmp_path / "c", folder=images)
    assert len(again) == 7
    # Those of the second part may not be whole.
    assert (len(again.sync().changed), len(again)) == (3, 10)
