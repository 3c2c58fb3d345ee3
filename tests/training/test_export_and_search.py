"""From a run to an export to neighbors, by the commands of the README."""

import getpass
import shutil
import socket
from pathlib import Path

import pytest

from training import embed, evaluate, export, report, search
from training.runs.run_directory import write_json
from training.search import ExportSearch

pytestmark = pytest.mark.slow


@pytest.fixture
def loaded(tiny, monkeypatch):
    """The session's export, which the command need not load again."""
    found = tiny.search
    monkeypatch.setattr(search, "ExportSearch", lambda *_: found)
    return found


def test_an_export_names_its_run_and_nothing_private(tiny):
    facts = tiny.search.metadata
    assert facts["run"] == "gsp-0"
    assert facts["recipe"]["dataset"] == "folder"
    assert facts["scores"]["map_at_r"] == 0.5
    assert facts["crop_fraction"] == pytest.approx(227 / 256, abs=0.02)
    assert facts["gallery_size"] == 20
    assert not [*tiny.search.folder.parent.glob("*.partial")]
    # Images are named below their folder.
    assert all((tiny.images / one).is_file() for one in tiny.search.ids)
    private = {str(Path.home()) + "/", str(Path.cwd()), str(tiny.folder)}
    private |= {f"pytest-of-{getpass.getuser()}", socket.gethostname() + "/"}
    for file in filter(Path.is_file, tiny.search.folder.rglob("*")):
        content = file.read_bytes()
        for word in private:
            assert word.encode() not in content, (word, file)
            assert word.encode("utf-32-le") not in content, (word, file)


def test_a_card_says_what_training_gained_and_not_where_the_images_are(
    tiny, tmp_path
):
    run, model = tiny.copied(tmp_path), tmp_path / "model"
    said = "raw features 0.600, this run 0.500: training did not help."
    write_json(run / "scores.json", {"verdict": said})
    export.main([str(run), "--index", "none", "--output", str(model)])
    card = (model / "README.md").read_text()
    assert f"\n\n{said}\n" in card and str(tiny.images) not in card


def test_pictures_are_read_from_the_folder_that_is_given(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    id_ = tiny.search.ids[0]
    search = ExportSearch(tiny.search.folder)
    assert search.image(id_) is None  # There is no run in `runs` here.
    (tmp_path / "runs").mkdir()
    shutil.copytree(tiny.run(), tmp_path / "runs" / "gsp-0")
    search = ExportSearch(tiny.search.folder)
    assert search.image(id_) == (tiny.images / id_).read_bytes()


def test_search_prints_a_table_and_draws_pictures(
    tiny, loaded, tmp_path, capsys
):
    name, model = loaded.ids[5], loaded.folder
    image = str(tiny.images / name)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    grid = tmp_path / "grid.png"
    search.main(
        [
            *(str(model), image, str(tmp_path / "broken.jpg")),
            *("--top", "3", "--picture", str(grid)),
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == image
    rank, distance, *_ = lines[1].split()
    # The graph rounds a level in a hundredth of the pixels.
    assert rank == "1" and float(distance) < 2e-3
    assert lines[1].endswith(f"  {name}")
    assert "broken.jpg: unreadable" in lines[4]
    assert grid.stat().st_size > 1000


def test_bad_searches_are_refused(tiny, tmp_path):
    model, alone = str(tiny.search.folder), tmp_path / "encoder"
    shutil.copytree(model, alone)
    (alone / "metadata.json").write_text('{"signatures": ["embed"]}')
    for arguments, message in (
        ([model, "nowhere.jpg"], "nowhere.jpg"),
        ([model, __file__], "none of the images"),
        ([str(alone), __file__], "encoder alone"),
    ):
        with pytest.raises(SystemExit, match=message):
            search.main(arguments)


def test_every_command_cuts_images_as_the_encoder_expects(
    tiny, tmp_path, capsys
):
    run = tiny.copied(tmp_path, resize=48)
    output = ["--output", str(tmp_path / "out")]
    for command, options in (
        (evaluate, []),
        (export, output),
        (export, [*output, "--index", "none"]),
        (export, [*output, "--false-accept-rate", "0.1"]),
        (embed, [*output, "--images", str(tiny.images)]),
    ):
        with pytest.raises(SystemExit) as stopped:
            command.main([str(run), *options])
        words = str(stopped.value.code)
        assert "`encoder` and `recipe` must cut images alike" in words
        assert "shorter_side=27" in words and "side=48" in words
    assert not (tmp_path / "out").exists()
    # A report does without embeddings.
    report.main([str(run)])
    printed = capsys.readouterr().out
    assert "No image could be embedded: `encoder` and `recipe` must" in printed
