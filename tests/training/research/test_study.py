"""A study tunes each cell's rate, trains its seeds, and makes its record."""

import json
import shutil

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits
from training.research import study
from training.research.studies import (
    BASELINES,
    PROXY_LOSSES,
    STUDIES,
    UNTRAINED,
)
from training.research.study import Cell, StudyCommand, cells_of, run_study
from training.research.study_record import study_record, study_table
from training.runs.run_directory import RunDirectory, write_json, write_text
from training.runs.run_lock import run_lock
from training.runs.scoring import FILE as EMBEDDINGS
from training.runs.train_run import run_settings


def image_set(name, num_classes):
    labels = np.repeat(np.arange(num_classes), 4)
    names = tuple(f"{name}{i}" for i in range(num_classes))
    return ImageSet(labels, names, paths=tuple(map(str, range(len(labels)))))


SPLITS = RetrievalSplits("x", image_set("train", 48), image_set("test", 6))
# Error of the stand-in models by method.
NOISE = {"untrained": 3.0, "gap": 1.0, "gsp": 0.8, "single": 0.6, "ccp": 0.3}


class Trainer:
    """Stands in for `train_run`; the best rate is `peak` times the middle."""

    def __init__(self):
        self.peak, self.done, self.tested = {}, [], []

    def __call__(self, recipe, splits, directory, *, label, keep_embeddings):
        row, _, method = directory.path.parent.name.rpartition(".")
        directory.path.mkdir(parents=True, exist_ok=True)
        with run_lock(directory.path):
            self.done.append(f"{method} {directory.path.name}")
        fold = directory.path.name.partition("-")[2].partition("-")[2]
        wanted = 1e-4 * self.peak.get(method, 1.0) * self.peak.get(fold, 1.0)
        score = 0.5 - 0.01 * abs(np.log(recipe.learning_rate / wanted))
        if recipe.steps:
            line = {"step": 10, "val_map_at_r": score, "seconds": 6.0}
            if recipe.ccp == "on":
                line |= {"ccp_problem": 2, "ccp_covering_radius": 0.5}
            write_text(directory.history, json.dumps(line) + "\n")
        if keep_embeddings:
            self.tested.append(directory.path.name)
            assert splits.test is SPLITS.test
            labels = splits.test.labels
            rng = np.random.default_rng(recipe.seed)
            noise = NOISE[method] * rng.normal(size=(len(labels), 8))
            found = np.eye(8)[labels] + noise
            np.savez(directory.path / EMBEDDINGS, test=found)
        else:
            assert splits.test is splits.validation
            assert splits.validation.num_classes < SPLITS.train.num_classes
        write_json(directory.settings, run_settings(recipe))
        write_json(directory.scores, {"map_at_r": score})


@pytest.fixture
def trainer(monkeypatch):
    found = Trainer()
    monkeypatch.setattr(study, "train_run", found)
    monkeypatch.setattr(study, "check_sources", lambda recipe: None)

    def read(recipe, check):
        check(SPLITS)
        return SPLITS

    monkeypatch.setattr(study, "read_recipe", read)
    return found


def command(folder, name="emoji", methods=("gap",), **settings):
    own = {"losses": ("c2",), "seeds": 2, "methods": methods} | settings
    return StudyCommand(study=name, runs=folder, **own)


def test_each_cell_chooses_its_rate_and_then_trains_its_seeds(
    trainer, tmp_path
):
    trainer.peak = {"ccp": 3.0}
    folder = run_study(command(tmp_path, methods=("gap", "ccp")))
    searches = [one for one in trainer.done if "search" in one]
    assert len(searches) == len(set(searches)) == 10
    assert sorted(trainer.tested) == ["seed0"] * 3 + ["seed1"] * 2
    rates = {
        row["method"]: row["learning_rate"]
        for row in study_record(folder)["rows"]
    }
    assert rates["gap"] == pytest.approx(1e-4)
    assert rates["ccp"] == pytest.approx(3e-4)


@pytest.mark.parametrize(("peak", "runs"), [(9.0, 6), (1 / 9, 6), (27.0, 7)])
def test_a_best_rate_at_an_end_widens_the_grid(trainer, tmp_path, peak, runs):
    trainer.peak = {"gap": peak}
    folder = run_study(command(tmp_path))
    row = study_record(folder)["rows"][1]
    assert len(row["rates"]) == runs
    assert row["learning_rate"] == pytest.approx(1e-4 * peak, rel=1e-2)
    best = max(row["rates"], key=row["rates"].get)
    assert row["learning_rate"] == pytest.approx(float(best))
    # A rate that grows without end stops at the largest grid.
    trainer.peak, trainer.done = {"gap": 1e9}, []
    run_study(command(tmp_path / "endless"))
    searches = [one for one in trainer.done if "search" in one]
    assert len(searches) == study.LARGEST_GRID


def test_the_search_with_the_chosen_rate_is_the_first_seed(trainer, tmp_path):
    folder = run_study(command(tmp_path)) / "c2.gap"
    (folder / "search-rate0.0001" / "mark").touch()
    for name in ("seed0", "seed1"):
        shutil.rmtree(folder / name)
    run_study(command(tmp_path))
    assert (folder / "seed0" / "mark").exists()
    assert not (folder / "seed1" / "mark").exists()
    assert not [*folder.glob("tmp*")]


def test_a_diverged_rate_is_never_chosen(tmp_path):
    cell = Cell(tmp_path, STUDIES["emoji"].cells["c2", "gap"], range(1))
    for place, run in enumerate(cell.missing()):
        directory = RunDirectory(run.path)
        run.path.mkdir(parents=True)
        score = float("nan") if place == 0 else 0.1 * (place == 3)
        line = {"step": 1, "val_map_at_r": score}
        write_text(directory.history, json.dumps(line) + "\n")
        write_json(directory.scores, {})
    assert cell.chosen_rate() == pytest.approx(3e-4)


def test_finished_runs_stay_and_more_seeds_are_added(trainer, tmp_path):
    run_study(command(tmp_path))
    first = len(trainer.done)
    run_study(command(tmp_path))
    assert len(trainer.done) == first
    run_study(command(tmp_path, seeds=3))
    # Pretrained features, the baseline, depend on no seed.
    assert trainer.done[first:] == ["gap seed2"]


def test_a_run_of_another_process_is_left_to_it(trainer, tmp_path, capsys):
    taken = tmp_path / "emoji" / "c2.gap" / "search-rate0.0001"
    taken.mkdir(parents=True)
    with run_lock(taken):
        run_study(command(tmp_path))
    assert "runs left to other processes: 1" in capsys.readouterr().out
    assert "gap seed0" not in trainer.done
    run_study(command(tmp_path))
    assert "gap seed1" in trainer.done


def test_a_trained_run_is_scored_by_one_process(trainer, tmp_path, capsys):
    run_study(command(tmp_path))
    run = tmp_path / "emoji" / "c2.gap" / "seed0"
    (run / study.QUERIES).unlink()
    with run_lock(run):
        run_study(command(tmp_path))
    assert "runs left to other processes: 1" in capsys.readouterr().out
    assert not (run / study.QUERIES).exists()


def test_another_error_of_a_run_stops_the_study(trainer, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise FileExistsError("no run's folder")

    monkeypatch.setattr(study, "train_run", fail)
    with pytest.raises(FileExistsError, match="no run's folder"):
        run_study(command(tmp_path))


def test_models_of_all_folds_are_scored_together(trainer, tmp_path):
    folder = run_study(command(tmp_path, "birds50-frozen", seeds=1))
    cell = folder / "c2.gap"
    names = sorted(path.name for path in cell.glob("seed*") if path.is_dir())
    assert names == [f"seed0-fold{fold}" for fold in range(4)]
    parts = [np.load(cell / name / EMBEDDINGS)["test"] for name in names]
    expected = gsp.metrics.retrieval_scores(
        np.concatenate(parts, axis=1), SPLITS.test.labels
    )
    row = study_record(folder)["rows"][1]
    assert row["models"] == 4
    assert row["together"]["map_at_r"]["mean"] == pytest.approx(
        expected["map_at_r"]
    )
    assert "folds together" in study_table(study_record(folder)).markdown()


def test_intervals_are_over_images_where_the_classes_are_all(trainer, tmp_path):
    folder = run_study(command(tmp_path, "cifar-collage", ("gap", "gsp")))
    (row,) = (r for r in study_record(folder)["rows"] if r["method"] == "gsp")
    ours, theirs = (
        [
            np.load(folder / f"c2.{method}" / f"seed{n}" / study.QUERIES)
            for n in (0, 1)
        ]
        for method in ("gsp", "gap")
    )
    expected = gsp.metrics.paired_difference(
        [one["map_at_r"] for one in ours],
        [one["map_at_r"] for one in theirs],
        np.arange(len(SPLITS.test)),
    )
    found = row["differences"]["gap"]
    assert {**expected, **found} == expected


def test_folds_choose_a_rate_together(trainer, tmp_path):
    # The first fold alone would choose 1e-3.
    trainer.peak = {"gap": 10.0, "fold1": 3.0, "fold2": 3.0, "fold3": 3.0}
    folder = run_study(command(tmp_path, "birds50-frozen", seeds=1))
    searches = [one for one in trainer.done if "search" in one]
    assert len(searches) == len(set(searches)) == 5 * 4
    row = study_record(folder)["rows"][1]
    assert row["learning_rate"] == pytest.approx(3e-3)
    assert row["rates"]["0.003"] == pytest.approx(0.5 - 0.01 * np.log(3) / 4)


def test_a_record_has_paired_differences_and_activity(trainer, tmp_path):
    methods = ("gap", "single", "ccp")
    folder = run_study(command(tmp_path, methods=methods))
    record = study_record(folder)
    rows = {row["method"]: row for row in record["rows"]}
    assert list(rows) == ["untrained", *methods]
    queries = {
        method: [
            dict(np.load(folder / f"c2.{method}" / run / study.QUERIES))
            for run in ("seed0", "seed1")
        ]
        for method in ("gap", "ccp")
    }
    expected = gsp.metrics.paired_difference(
        [one["map_at_r"] for one in queries["ccp"]],
        [one["map_at_r"] for one in queries["gap"]],
        SPLITS.test.labels,
    )
    found = rows["ccp"]["differences"]
    assert found["gap"]["difference"] == expected["difference"]
    assert found["gap"]["low"] == expected["low"]
    assert set(found) == {"gap", "single", "untrained"}
    assert set(rows["gap"]["differences"]) == {"untrained"}
    assert rows["ccp"]["activity"]["ccp_problem"] == [2, 2]
    text = study_table(record).markdown()
    assert "problems 2, scored in 2, covering radius 0.50 |" in text
    assert "| 0.0001 |" in text


def test_too_few_classes_are_refused_before_training(trainer, tmp_path):
    few = RetrievalSplits("x", image_set("train", 8), SPLITS.test)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "read_recipe", lambda recipe, check: check(few))
        with pytest.raises(ValueError, match="classes_per_batch=8 for 6"):
            run_study(command(tmp_path))
    assert not trainer.done


def test_every_study_starts_with_its_baseline_and_repeats_no_cell(tmp_path):
    for name, one in STUDIES.items():
        recipes = [r for r in one.cells.values()]
        assert [*one.cells][0] == UNTRAINED, name
        assert len({*recipes}) == len(recipes), name
        for (row, method), recipe in one.cells.items():
            assert (recipe.steps == 0) == (method == "untrained"), name
            assert (recipe.ccp == "on") == method.startswith("ccp"), name
            first = BASELINES.get(method, ("gap",))[:1]
            assert {*first} <= {*one.methods}, (name, row, method)
        middles = [c.recipe for c in cells_of(one, tmp_path).values()]
        assert len(middles) == len(one.cells)


def test_a_method_changes_one_thing():
    cells = STUDIES["emoji"].cells
    share = "log_regularizer_share"
    for row in ("c1", "c2", "ms", "proxy-anchor"):
        pairs = [("gap", "gsp", {"pooling"})]
        if row in PROXY_LOSSES:
            pairs += [("gap", "ccp", {"ccp", "ccp_patience"})]
        else:
            pairs += [("single", "ccp", {"ccp"})]
            pairs += [("gsp", "gsp-zsr", {"regularizer", share})]
            pairs += [("gap", "xml", {"regularizer", share})]
            pairs += [("gap", "xbm", {"memory", "in_batch_weight"})]
        for one, other, expected in pairs:
            first = cells[row, one].settings
            second = cells[row, other].settings
            found = {k for k in first if first[k] != second[k]}
            found.discard("pooling_arguments")
            assert found == expected, (row, one, other)
