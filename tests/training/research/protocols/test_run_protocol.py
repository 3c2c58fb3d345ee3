"""Protocols train what is missing, and say on what weights were chosen."""

import json
from dataclasses import replace

import numpy as np
import pytest

from training.datasets.image_set import ImageSet, RetrievalSplits
from training.recipes.recipe import Recipe
from training.research.protocols import run_protocol as run_protocol_module
from training.research.protocols.ledger import Ledger
from training.research.protocols.members import members_of
from training.research.protocols.run_protocol import run_protocol
from training.runs.kept_embeddings import FILE
from training.runs.run_directory import RunDirectory, write_json
from training.train import protocol_report


def image_set(name, num_classes):
    labels = np.repeat(np.arange(num_classes), 3)
    names = tuple(f"{name}{i}" for i in range(num_classes))
    return ImageSet(labels, names, paths=tuple(map(str, range(len(labels)))))


@pytest.fixture
def splits():
    return RetrievalSplits("x", image_set("train", 9), image_set("test", 4))


@pytest.fixture
def trained(monkeypatch):
    """Stands in for training; returns the list of what was trained."""
    done = []

    def train_run(
        recipe, splits, directory, *, label, keep_embeddings, distribution
    ):
        assert keep_embeddings
        if len(done) == trained_at_most[0]:
            raise KeyboardInterrupt
        done.append((recipe, splits, directory.path.name))
        directory.path.mkdir(parents=True)
        rng = np.random.default_rng(recipe.seed)
        embeddings = rng.normal(size=(len(splits.test), 8))
        np.savez(directory.path / FILE, test=embeddings)
        write_json(directory.scores, {"map_at_r": 0.1})
        return {"map_at_r": 0.1}

    trained_at_most = [np.inf]
    monkeypatch.setattr(run_protocol_module, "train_run", train_run)
    return done, trained_at_most


def begun(path):
    directory = RunDirectory(path)
    directory.begin({"recipe": {}})
    return directory


def test_fair_models_are_chosen_on_their_fold(tmp_path, splits, trained):
    recipe = Recipe(protocol="fair", repeats=2, seed=5)
    scores = run_protocol(recipe, splits, begun(tmp_path))
    runs, _ = trained
    assert len(runs) == scores["num_models"] == 8
    assert scores["num_collections"] == 16
    held_out = set()
    for member, parts, name in runs:
        assert member.protocol == "single"
        assert name == f"fold{member.validation_fold}-seed{member.seed}"
        assert member.seed in (5, 6)
        held_out |= {*parts.validation.class_names}
        assert not {*parts.validation.class_names} & {*parts.train.class_names}
        assert parts.train.num_classes + parts.validation.num_classes == 9
    assert held_out == {*splits.train.class_names}
    assert "held-out" in scores["selected_on"]


def test_conventional_scores_say_that_test_data_chose(
    tmp_path, splits, trained
):
    recipe = Recipe(protocol="conventional", repeats=2, embedding_size=8)
    scores = run_protocol(recipe, splits, begun(tmp_path))
    assert scores["selected_on"] == "the test data itself"
    assert scores["single"]["embedding_size"] == 8
    values = scores["single"]["map_at_r"]["values"]
    assert scores["best"]["map_at_r"] == max(values)
    assert "the best of 2: map_at_r" in protocol_report(tmp_path, scores)
    for _, parts, _ in trained[0]:
        assert parts.validation is parts.test
        assert parts.train.num_classes == 9


def test_a_data_sets_own_validation_classes_choose(tmp_path, splits, trained):
    own = replace(splits, validation=image_set("validation", 2))
    recipe = Recipe(repeats=3)
    for name, given, held_out in (("own", own, 2), ("fold", splits, 3)):
        scores = run_protocol(recipe, given, begun(tmp_path / name))
        assert scores["num_models"] == 3
        assert "neither trained with nor scored" in scores["selected_on"]
        parts = trained[0][-1][1]
        assert parts.validation.num_classes == held_out


def test_a_killed_study_trains_only_what_is_missing(tmp_path, splits, trained):
    runs, at_most = trained
    recipe = Recipe(protocol="fair", repeats=1)
    at_most[0] = 3
    directory = begun(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_protocol(recipe, splits, directory)
    assert not directory.is_finished
    at_most[0] = np.inf
    first = [name for *_, name in runs]
    run_protocol(recipe, splits, directory)
    names = [name for *_, name in runs]
    assert names == [*first, "fold3-seed0"]
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["member"] for line in lines] == names


def test_a_cut_ledger_line_is_passed_over(tmp_path):
    ledger = Ledger(tmp_path)
    member = members_of(Recipe(protocol="fair", repeats=1))[0]
    ledger.record(member, 2.0, {"map_at_r": 0.5})
    with ledger.file.open("a") as file:
        file.write('{"member": "fo')
    assert ledger.seconds() == 2.0


def test_too_few_training_classes_are_refused(tmp_path, trained):
    splits = RetrievalSplits("x", image_set("a", 3), image_set("b", 2))
    recipe = Recipe(protocol="fair", repeats=1)
    with pytest.raises(ValueError, match="num_folds"):
        run_protocol(recipe, splits, begun(tmp_path))
