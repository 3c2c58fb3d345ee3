"""A study tunes each cell's rate, trains its seeds, and makes its record."""

import json
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.data import ImageSet
from training.datasets.image_set import RetrievalSplits
from training.research import study
from training.research.studies import STUDIES, UNTRAINED, beside
from training.research.study import Cell, StudyCommand, run_study
from training.research.study_record import (
    at_work,
    method_name,
    study_record,
    study_table,
)
from training.runs import trial
from training.runs.run_directory import RunDirectory, write_json, write_text
from training.runs.scoring import FILE as EMBEDDINGS
from training.runs.train_run import run_settings


def image_set(name, num_classes):
    labels = np.repeat(np.arange(num_classes), 4)
    names = tuple(f"{name}{i}" for i in range(num_classes))
    return ImageSet(labels, names, paths=tuple(map(str, range(len(labels)))))


SPLITS = RetrievalSplits("x", image_set("train", 48), image_set("test", 6))
# Error of the stand-in models by method.
NOISE = {
    "untrained": 3.0,
    "gap": 1.0,
    "gsp": 0.8,
    "single-fast": 0.6,
    "ccp-slow": 0.3,
}


class Trainer:
    """Stands in for `train_run`; the best rate is `peak` times the middle."""

    def __init__(self):
        self.peak, self.done, self.slope = {}, [], 0.01

    def __call__(self, recipe, splits, directory, *, label, **options):
        _, _, method = directory.path.parent.name.rpartition(".")
        directory.path.mkdir(parents=True, exist_ok=True)
        with directory.locked():
            self.done.append(f"{method} {directory.path.name}")
        fold = directory.path.name.partition("-")[2].partition("-")[2]
        wanted = 1e-4 * self.peak.get(method, 1.0) * self.peak.get(fold, 1.0)
        score = 0.5 - self.slope * abs(np.log(recipe.learning_rate / wanted))
        if recipe.steps:
            line = {"step": 10, "val_map_at_r": score, "seconds": 6.0}
            if recipe.ccp == "on":
                line |= {"ccp_problem": 2}
            write_text(directory.history, json.dumps(line) + "\n")
        assert splits.test is SPLITS.test
        assert splits.validation.num_classes < SPLITS.train.num_classes
        labels = splits.test.labels
        seed = recipe.seed, int(1e9 * recipe.learning_rate)
        noise = np.random.default_rng(seed).normal(size=(len(labels), 8))
        found = np.eye(8)[labels] + NOISE[method] * noise
        np.savez(directory.path / EMBEDDINGS, test=found)
        write_json(directory.settings, run_settings(recipe))
        write_json(directory.scores, {"map_at_r": score})


@pytest.fixture
def trainer(monkeypatch):
    found = Trainer()
    monkeypatch.setattr(trial, "train_run", found)
    monkeypatch.setattr(study, "check_sources", lambda recipe: None)
    monkeypatch.setattr(study, "kept_weights", lambda one: ())

    def read(recipe, check):
        check(SPLITS)
        return SPLITS

    monkeypatch.setattr(study, "read_recipe", read)
    return found


def command(folder, name="emoji-tuned", methods=("gap",), **settings):
    own = {"losses": ("c2",), "seeds": 2, "methods": methods} | settings
    return StudyCommand(study=name, runs=folder, **own)


def scores(run):
    return np.load(run / trial.QUERIES)["map_at_r"]


def mean_score(runs):
    return np.mean([scores(run) for run in runs])


def rows_of(folder):
    return {row["method"]: row for row in study_record(folder)["rows"]}


def test_each_cell_chooses_its_rate_and_then_trains_its_seeds(
    trainer, tmp_path
):
    trainer.peak = {"ccp-slow": 3.0}
    folder = run_study(command(tmp_path, methods=("gap", "ccp-slow")))
    assert len(trainer.done) == len(set(trainer.done)) == 1 + 2 * (5 + 1)
    rates = {m: row["learning_rate"] for m, row in rows_of(folder).items()}
    assert rates["gap"] == pytest.approx(1e-4)
    assert rates["ccp-slow"] == pytest.approx(3e-4)
    # Folds choose together: the first one alone would choose 1e-3.
    trainer.peak = {"gap": 10.0, "fold1": 3.0, "fold2": 3.0, "fold3": 3.0}
    folder = run_study(command(tmp_path, "birds50-frozen", seeds=1))
    row = rows_of(folder)["gap"]
    assert row["learning_rate"] == pytest.approx(3e-3)
    assert row["rates"]["0.003"] == pytest.approx(0.5 - 0.01 * np.log(3) / 4)


def test_scores_are_means_over_all_rates_near_the_best(trainer, tmp_path):
    # A factor of 3 costs 0.2 points, of 9 costs 0.4.
    trainer.slope = 0.002 / np.log(3)
    folder = run_study(command(tmp_path))
    cell = folder / "c2.gap"
    assert sum("seed1" in name for name in trainer.done) == 3
    (found,) = (r for r in study_record(folder)["rows"] if r["row"] == "c2")
    rates = found["near_rates"]
    assert rates == pytest.approx([1e-4 / 3, 1e-4, 3e-4], rel=1e-2)
    expected = [
        mean_score([cell / f"seed{seed}-rate{rate:g}" for rate in rates])
        for seed in (0, 1)
    ]
    assert found["scores"]["map_at_r"]["values"] == pytest.approx(expected)
    assert "3.33e-05-0.0003" in study_table(study_record(folder)).markdown()


def test_a_best_rate_at_an_end_widens_the_grid(trainer, tmp_path):
    for peak, runs in ((9.0, 6), (1 / 9, 6), (27.0, 7)):
        trainer.peak = {"gap": peak}
        row = rows_of(run_study(command(tmp_path / f"{peak}")))["gap"]
        assert len(row["rates"]) == runs
        assert row["learning_rate"] == pytest.approx(1e-4 * peak, rel=1e-2)
    # A rate that grows without end stops at the largest grid.
    trainer.peak, trainer.done = {"gap": 1e9}, []
    run_study(command(tmp_path / "endless", seeds=1))
    searches = [one for one in trainer.done if "gap" in one]
    assert len(searches) == study.LARGEST_GRID


def test_a_diverged_rate_is_never_chosen(tmp_path):
    one = replace(STUDIES["emoji-tuned"], seeds=1)
    cell = Cell(tmp_path, one, ("c2", "gap"))
    for place, run in enumerate(cell.missing()):
        run.path.mkdir(parents=True)
        score = float("nan") if place == 0 else 0.1 * (place == 3)
        line = {"step": 1, "val_map_at_r": score}
        write_text(RunDirectory(run.path).history, json.dumps(line) + "\n")
        (run.path / trial.QUERIES).touch()
    found = {rate: cell.score(rate) for rate in cell.rates()}
    assert study.near_best(found) == pytest.approx([3e-4])
    assert cell.missing() == []


def test_a_run_of_another_process_is_left_to_it(trainer, tmp_path, capsys):
    taken = tmp_path / "emoji-tuned" / "c2.gap" / "seed0-rate0.0001"
    taken.mkdir(parents=True)
    with RunDirectory(taken).locked():
        run_study(command(tmp_path))
    assert "runs left to other processes: 1" in capsys.readouterr().out
    assert not any("seed1" in name for name in trainer.done)
    run_study(command(tmp_path))
    assert "gap seed1-rate0.0001" in trainer.done
    # Another error stops the study.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trial, "train_run", mock.Mock(side_effect=FileExistsError)
        )
        with pytest.raises(FileExistsError):
            run_study(command(tmp_path / "other"))


def test_a_seed_has_a_model_a_fold(trainer, tmp_path):
    options = {"seeds": 2, "as_printed": True, "backbone_weights": "w.h5"}
    folder = run_study(command(tmp_path, "birds50-frozen", **options))
    row, runs = rows_of(folder)["gap"], folder / "c2.gap"
    assert row["models"] == 8
    # The recipe's own rate alone, as the papers print.
    assert {name.partition("-fold")[0] for name in trainer.done} == {
        *("gap seed0-rate0.001", "gap seed1-rate0.001"),
        "untrained seed0-rate0.001",
    }
    # Models of a fold share their classes and count once.
    folds = [
        [runs / f"seed{s}-rate0.001-fold{f}" for s in (0, 1)] for f in range(4)
    ]
    expected = [mean_score(fold) for fold in folds]
    assert row["scores"]["map_at_r"]["values"] == pytest.approx(expected)
    means = [np.mean([*map(scores, fold)], axis=0) for fold in folds]
    raw = scores(folder / "-.untrained/seed0-rate0.001")
    expected = gsp.metrics.paired_difference(
        means, [raw] * 4, SPLITS.test.labels
    )
    found = row["differences"]["untrained"]
    assert expected | found == expected and found["num_seeds"] == 4
    # Runs of a study that was changed since are not pooled.
    file = runs / "seed1-rate0.001-fold3/settings.json"
    settings = json.loads(file.read_text())
    settings["recipe"]["steps"] = 7
    write_json(file, settings)
    with pytest.raises(ValueError, match="other steps in .*seed1-rate0"):
        study_record(folder)


def test_intervals_are_over_images_and_need_three_models(trainer, tmp_path):
    options = {"methods": ("gap", "gsp"), "as_printed": True}
    folder = run_study(command(tmp_path, "collage-zsr-searched", **options))
    two = rows_of(folder)["gsp"]["differences"]["gap"]
    assert two["num_seeds"] == 2 and "low" not in two
    folder = run_study(
        command(tmp_path, "collage-zsr-searched", seeds=3, **options)
    )
    ours, theirs = (
        [scores(folder / f"c2.{method}/seed{n}-rate0.001") for n in range(3)]
        for method in ("gsp", "gap")
    )
    expected = gsp.metrics.paired_difference(
        ours, theirs, np.arange(len(SPLITS.test))
    )
    three = rows_of(folder)["gsp"]["differences"]["gap"]
    assert expected | three == expected and three["num_seeds"] == 3


@pytest.fixture
def searched(monkeypatch):
    """A study that searches two settings of GSP, from two networks."""
    weights = study.Path("0.h5"), study.Path("1.h5")
    one = replace(STUDIES["rivals"], seeds=3)
    names = ("gsp@0", "gsp@3")
    cells = {
        key: recipe
        for key, recipe in one.cells.items()
        if key == UNTRAINED or key[1] in ("gap", *names)
    }
    monkeypatch.setitem(STUDIES, "rivals", replace(one, cells=cells))
    monkeypatch.setattr(study, "kept_weights", lambda _: weights)
    for name in names:
        monkeypatch.setitem(NOISE, name, 0.5)


def test_settings_are_searched_and_the_best_are_trained_on(
    trainer, tmp_path, searched
):
    # Both settings peak at the middle, the second one lower.
    trainer.peak = {"gap": 20.0, "gsp@0": 20.0, "gsp@3": 25.0}
    options = {"methods": ("gap", "gsp"), "seeds": 3}
    folder = run_study(command(tmp_path, "rivals", **options))
    runs = [name for name in trainer.done if "gsp" in name]
    # Two seeds at five rates each, then the third seed of the better one.
    assert len(runs) == 2 * 2 * 5 + 1
    assert "gsp@0 seed2-rate0.002" in runs
    row = rows_of(folder)["gsp"]
    assert row["searched"] == 2 and row["models"] == 3
    assert row["settings"]["transport_ratio"] == 0.05
    text = study_table(study_record(folder)).markdown()
    assert "gsp (0.05, 40, 64; best of 2)" in text
    weights = [
        RunDirectory(folder / f"c2.gsp@0/seed{n}-rate0.002").read_recipe()
        for n in range(3)
    ]
    names = [recipe.backbone_weights for recipe in weights]
    assert names == ["0.h5", "1.h5", "0.h5"]


def test_a_record_has_paired_differences_and_activity(trainer, tmp_path):
    methods = ("gap", "single-fast", "ccp-slow")
    options = {"methods": methods, "backbone_weights": "w.h5"}
    folder = run_study(command(tmp_path, **options))
    rows = rows_of(folder)
    assert list(rows) == ["untrained", *methods]
    found = rows["ccp-slow"]["differences"]
    assert set(found) == {"gap", "single-fast", "untrained"}
    assert set(rows["gap"]["differences"]) == {"untrained"}
    # Over all seeds, of an untrained network that was scored once too.
    for row, other in (("gap", "untrained"), ("ccp-slow", "single-fast")):
        mean = [rows[one]["scores"]["map_at_r"]["mean"] for one in (row, other)]
        gain = rows[row]["differences"][other]
        assert gain["num_seeds"] == 2
        assert gain["difference"] == pytest.approx(mean[0] - mean[1])
    assert rows["ccp-slow"]["activity"]["ccp_problem"] == [2, 2]
    text = study_table(study_record(folder)).markdown()
    assert "problems 2, scored in 2; 2 models |" in text


def test_a_table_says_where_a_method_did_not_act():
    for scored, name in (
        ([1, 1, 1], "single-gsp (one set)"),
        ([1, 2, 1], "ccp-gsp (1 of 3 alternate)"),
        ([2, 3, 2], "ccp-gsp"),
    ):
        row = {"method": "ccp-gsp", "activity": {"ccp_scored": scored}}
        assert method_name(row) == name
    assert at_work({"regularizer_share": [0.01, 0.049]}) == "share 0.01-0.049"


def test_every_study_starts_with_its_baseline_and_repeats_no_cell():
    for name, one in STUDIES.items():
        assert [*one.cells][0] == UNTRAINED, name
        recipes = [
            (recipe, one.controls.get(cell), cell in one.unsearched)
            for cell, recipe in one.cells.items()
        ]
        assert len({*recipes}) == len(recipes), name
        for (row, method), recipe in one.cells.items():
            assert (recipe.steps == 0) == (method == "untrained"), name
            assert (recipe.ccp == "on") == method.startswith("ccp"), name
            first = beside(method, name)[:1]
            assert {*first} <= {*one.methods}, (name, row, method)
