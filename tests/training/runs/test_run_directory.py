import json
from dataclasses import asdict

import pytest

from training.recipes.recipe import Recipe
from training.runs.environment import environment
from training.runs.run_directory import RunDirectory, write_json

SETTINGS = {"recipe": asdict(Recipe(seed=3))}


def test_beginning_writes_settings_that_give_the_recipe_back(tmp_path):
    run = RunDirectory(tmp_path / "runs" / "x")
    run.begin(SETTINGS)
    assert run.read_recipe() == Recipe(seed=3)
    assert not run.is_finished


def test_an_unfinished_run_of_the_same_recipe_may_go_on(tmp_path):
    run = RunDirectory(tmp_path)
    run.begin(SETTINGS | {"environment": "then"})
    run.begin(SETTINGS | {"environment": "now"})
    assert json.loads(run.settings.read_text())["environment"] == "then"


def test_an_unfinished_run_of_another_recipe_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    run.begin(SETTINGS)
    other = {"recipe": asdict(Recipe(seed=3, pooling="gsp"))}
    with pytest.raises(ValueError, match="pooling: 'gap' there, 'gsp' now"):
        run.check(other)


def test_a_finished_run_is_never_begun_again(tmp_path):
    run = RunDirectory(tmp_path / "x")
    run.begin(SETTINGS)
    write_json(run.scores, {"map_at_r": 0.5})
    with pytest.raises(FileExistsError, match="x, which has scores.json"):
        run.begin(SETTINGS)
    assert run.read_scores() == {"map_at_r": 0.5}


def test_a_folder_that_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(FileExistsError, match="has no settings.json"):
        RunDirectory(tmp_path).begin(SETTINGS)
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_checking_writes_nothing(tmp_path):
    RunDirectory(tmp_path / "x").check(SETTINGS)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_run_has_no_recipe_and_no_history(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(FileNotFoundError, match="must hold settings.json"):
        run.read_recipe()
    assert run.read_history() == []


def test_a_failed_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "scores.json"
    write_json(file, {"old": 1})
    with pytest.raises(TypeError):
        write_json(file, {"new": object()})
    assert json.loads(file.read_text()) == {"old": 1}


def test_the_environment_names_versions_and_commit():
    found = environment()
    assert "keras" in found["packages"]
    assert found["commit"] is None or len(found["commit"]) >= 40
    json.dumps(found)
