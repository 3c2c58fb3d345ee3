import json
import os

import pytest

from keras_gsp.storage.one_process import TakenError
from keras_gsp.storage.whole import whole_file
from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory, write_json

SETTINGS = {"recipe": Recipe.of(seed=3).settings}


def test_an_unfinished_run_of_the_same_recipe_alone_may_resume(tmp_path):
    run = RunDirectory(tmp_path / "runs" / "x")
    with pytest.raises(FileNotFoundError, match="must hold settings.json"):
        run.read_recipe()
    assert run.read_history() == []
    run.begin(SETTINGS | {"environment": "then"})
    run.begin(SETTINGS | {"environment": "now"})
    assert json.loads(run.settings.read_text())["environment"] == "then"
    assert run.read_recipe() == Recipe.of(seed=3)
    other = {"recipe": Recipe.of(seed=3, pooling="gsp").settings}
    with pytest.raises(ValueError, match="pooling: 'gap' there, 'gsp' now"):
        run.check(other)
    assert not run.is_finished
    write_json(run.scores, {"map_at_r": 0.5})
    with pytest.raises(FileExistsError, match="x, which has scores.json"):
        run.begin(SETTINGS)
    assert run.read_scores() == {"map_at_r": 0.5}
    # A folder that is no run is left alone.
    other = tmp_path / "photos"
    other.mkdir()
    (other / "holiday.jpg").touch()
    with pytest.raises(FileExistsError, match="has no settings.json"):
        RunDirectory(other).begin(SETTINGS)
    assert [path.name for path in other.iterdir()] == ["holiday.jpg"]


def test_a_run_that_is_begun_just_now_or_was_killed_may_resume(
    tmp_path, monkeypatch
):
    run = RunDirectory(tmp_path / "killed")
    with whole_file(run.settings) as aside:
        aside.write_text("{")
        left = aside.name
    # Killed in its first file.
    run.settings.rename(run.path / left)
    run.begin(SETTINGS)
    assert run.read_recipe() == Recipe.of(seed=3)
    run = RunDirectory(tmp_path / "new")
    run.path.mkdir()
    looked = RunDirectory._holds_other_files

    def begun_meanwhile(self):
        found = looked(self)
        write_json(run.settings, SETTINGS)
        return found

    monkeypatch.setattr(RunDirectory, "_holds_other_files", begun_meanwhile)
    run.begin(SETTINGS)
    assert run.read_recipe() == Recipe.of(seed=3)


def test_a_second_training_is_refused_and_the_first_is_named(tmp_path):
    run = RunDirectory(tmp_path)
    with run.locked():
        with pytest.raises(TakenError, match=f"one process.*{os.getpid()}"):
            with run.locked():
                pass
    # An error frees the run.
    with pytest.raises(KeyboardInterrupt), run.locked():
        raise KeyboardInterrupt
    with run.locked():
        pass
