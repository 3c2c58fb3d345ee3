"""Trains a table of methods: `python -m training.research.study glyphs`.

Each cell of the table searches its learning rate: five rates, a factor 3
apart, are trained with the first seed, on every fold where a study has folds,
and compared on the validation classes; a best rate at an end of the grid adds
rates beyond it. Then every seed is trained at each rate within 0.3 points of
the best, and test scores are means over these rates. `--as-printed` trains the
recipe's own rate alone, as the papers do. A run is a folder,
`runs/STUDY/ROW.METHOD/RUN`; finished runs are not repeated, killed ones resume,
and several processes may train one study.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from keras_gsp.storage.one_process import TakenError
from training.datasets.image_set import RetrievalSplits
from training.recipes.data import check_classes, check_sources, read_recipe
from training.recipes.recipe import VALIDATION_FOLDS, Recipe
from training.recipes.settings import positive
from training.research.pretrained import kept_weights
from training.research.studies import (
    NEAR,
    STUDIES,
    UNTRAINED,
    Study,
    method_of,
)
from training.runs.command_line import run_command
from training.runs.run_directory import RunDirectory
from training.runs.trial import QUERIES, Trial

NUM_RATES, FACTOR, LARGEST_GRID = 5, 3.0, 11


@dataclass(frozen=True)
class StudyCommand:
    """Trains what a study lacks; resumes where it stopped."""

    study: Annotated[str, tyro.conf.Positional]
    """Name of the study; `list` prints all of them."""
    data_dir: str | None = None
    """Folder, archive or list file of the data set."""
    backbone_weights: str | None = None
    """Weights file of the backbone."""
    losses: tuple[str, ...] = ()
    """Rows to train; all by default. The untrained baseline always is."""
    methods: tuple[str, ...] = ()
    """Columns to train; all by default."""
    seeds: Annotated[int | None, positive] = None
    """Number of seeds; the study's own by default. More can follow later. The
    first one searches the learning rate."""
    as_printed: bool = False
    """Search no rate: train the recipe's own, the papers' for cub, cars, sop
    and inshop."""
    runs: Path = Path("runs")
    """Folder that holds the study's folder."""


class Cell:
    """The runs of one recipe of a study, in the cell's folder.

    The recipe's learning rate is the middle of the grid. The first seed
    searches; with `num_folds`, it and every seed train one model a fold.
    """

    def __init__(
        self, folder: Path, study: Study, key: tuple[str, str]
    ) -> None:
        self.folder = folder / ".".join(key)
        self.recipe = recipe = study.cells[key]
        self.control = study.controls.get(key, "")
        self.is_searched = recipe.steps > 0 and key not in study.unsearched
        self.near = study.near
        self.weights = study.weights
        self.search_seeds = range(study.search_seeds)
        # Cells that differ in a method's settings: the best is trained on.
        self.rivals: list[Cell] = [self]
        # Pretrained features depend on no seed, but on the pretraining.
        is_pretrained = study.weights or recipe.frozen != "none"
        is_once = not recipe.steps and is_pretrained
        once = max(1, len(study.weights))
        self.seeds = range(once if is_once else study.seeds)
        self.folds = range(study.num_folds if recipe.steps else 0)
        self.trials = cache(self._trials)  # Recipes take long to check.

    def missing(self) -> list[Trial]:
        """Runs that can be trained now: the search first, then all seeds."""
        if any(rival.searching() for rival in self.rivals):
            return self.searching()
        scores = {rate: self.score(rate) for rate in self.rates()}
        best = max(r.score(rate) for r in self.rivals for rate in r.rates())
        if max(scores.values()) < best:
            return []
        return self._missing(near_best(scores, self.near), self.seeds)

    def searching(self) -> list[Trial]:
        """Missing runs that choose a rate."""
        return self._missing(self.rates(), self.search_seeds)

    def recipes(self) -> list[Recipe]:
        """The recipe with each of the study's pretrained networks."""
        return [
            self.recipe.with_(backbone_weights=str(file))
            for file in self.weights
        ] or [self.recipe]

    def _missing(self, rates, seeds):
        return [
            trial
            for rate in rates
            for seed in seeds
            for trial in self.trials(rate, seed)
            if not trial.is_finished
        ]

    def rates(self) -> list[float]:
        """The grid, with rates that a best end has added."""
        middle = self.recipe.learning_rate
        if not self.is_searched:
            return [middle]
        low, high = -(NUM_RATES // 2), NUM_RATES // 2
        while True:
            steps = range(low, high + 1)
            rates = [float(f"{middle * FACTOR**step:.3g}") for step in steps]
            is_open = self._missing(rates, self.search_seeds)
            if is_open or len(rates) >= LARGEST_GRID:
                return rates
            best = max(rates, key=self.score)
            if best not in (rates[0], rates[-1]):
                return rates
            low, high = low - (best == rates[0]), high + (best == rates[-1])

    def score(self, rate: float) -> float:
        """The validation score of a rate, the mean over seeds and folds."""
        trials = [
            t for seed in self.search_seeds for t in self.trials(rate, seed)
        ]
        return float(np.mean([trial.validation_score() for trial in trials]))

    def _trials(self, rate, seed):
        """The runs of a rate and a seed, one a fold."""
        path = self.folder / f"seed{seed}-rate{rate:g}"
        recipes = self.recipes()
        recipe = recipes[seed % len(recipes)]
        recipe = recipe.with_(seed=seed, learning_rate=rate)
        return [
            Trial(
                path.with_name(f"{path.name}-fold{fold}"),
                recipe.with_(validation_fold=fold),
            )
            for fold in self.folds
        ] or [Trial(path, recipe)]


def near_best(scores: Mapping[float, float], near: float = NEAR) -> list[float]:
    """Rates whose validation score is within `near` of the best."""
    limit = max(scores.values()) - near
    return [r for r, score in scores.items() if not score < limit]


def run_study(command: StudyCommand) -> Path:
    """Trains the missing runs of a study.

    The cell with the fewest finished runs goes first, so that a study that is
    stopped early has a table. Returns the study's folder.
    """
    study = _chosen(command)
    folder = command.runs / command.study
    for recipe in study.cells.values():
        check_sources(recipe)
    study = replace(study, weights=kept_weights(study))
    by_key = {key: Cell(folder, study, key) for key in study.cells}
    for key, cell in by_key.items():
        cell.rivals = [by_key[rival] for rival in study.rivals(key)]
    cells = [*by_key.values()]
    # It imports Keras: not for an error or --help.
    from training.research.zero_shot_controls import controlled

    recipes = [recipe for cell in cells for recipe in cell.recipes()]
    data: dict[Any, RetrievalSplits] = {}
    taken: set[Path] = set()
    while missing := _next(cells, taken):
        cell, trial = missing
        key = _data_of(trial.recipe)
        if key not in data:
            data[key] = _read(recipes, key)
        splits = _validated(trial.recipe, data[key], bool(cell.folds))
        try:
            with controlled(cell.control):
                trial.train(splits)
        except TakenError:
            taken.add(trial.path)
            continue
        except FileExistsError:
            # Another process may just have finished it.
            if not RunDirectory(trial.path).is_finished:
                raise
            continue
        score = trial.validation_score()
        text = f"validation MAP@R {score:.4f}" if score >= 0 else "scored"
        print(f"{trial.path}: {text}", flush=True)
    if taken:
        print(f"runs left to other processes: {len(taken)}")
    return folder


def _validated(recipe, splits, has_folds):
    """The splits with the classes that validate this run."""
    if has_folds or splits.validation is None:
        fold = VALIDATION_FOLDS, recipe.validation_fold
        return splits.with_validation(*fold)
    return splits


def _data_of(recipe):
    """What recipes share that read the same images, or features of them."""
    backbone = recipe.backbone, recipe.backbone_weights, recipe.frozen
    return recipe.images, backbone if recipe.cache_features else None


def _read(recipes, key):
    """The data of the recipes with this key."""
    largest = max(
        (recipe for recipe in recipes if _data_of(recipe) == key),
        key=lambda recipe: recipe.classes_per_batch,
    )
    return read_recipe(
        largest,
        lambda splits: check_classes(
            largest, _validated(largest, splits, False)
        ),
    )


def _next(cells, taken):
    """The first missing run of the cell with the fewest finished ones."""
    candidates = []
    for cell in cells:
        missing = [one for one in cell.missing() if one.path not in taken]
        if missing:
            finished = len([*cell.folder.glob(f"*/{QUERIES}")])
            candidates.append((finished, cell, missing[0]))
    return min(candidates, key=lambda c: c[0])[1:] if candidates else None


def _chosen(command):
    """The part of a study that a command names."""
    if command.study not in STUDIES:
        raise ValueError(
            f"`study` must be one of {', '.join(STUDIES)}. Received: "
            f"study={command.study!r}."
        )
    study = STUDIES[command.study]
    for name, known in (("losses", study.rows), ("methods", study.methods)):
        unknown = {*getattr(command, name)} - {*known}
        if unknown:
            raise ValueError(
                f"`{name}` must be of {', '.join(known)}. Received: "
                f"{name}={sorted(unknown)}."
            )
    files = {
        name: getattr(command, name)
        for name in ("data_dir", "backbone_weights")
        if getattr(command, name) is not None
    }
    rows = {*command.losses} or {*study.rows}
    methods = {*command.methods} or {*study.methods}
    cells = {
        key: recipe.with_(**files)
        for key, recipe in study.cells.items()
        if key == UNTRAINED or key[0] in rows and method_of(key) in methods
    }
    return replace(
        study,
        cells=cells,
        seeds=command.seeds or study.seeds,
        unsearched={*cells} if command.as_printed else study.unsearched,
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("research.study", __doc__, StudyCommand, _main, arguments)


def _main(command):
    if command.study == "list":
        for name, study in STUDIES.items():
            print(f"{name:>24}  {study.title}")
        return
    folder = run_study(command)
    print(f"python -m training.research.pages {folder} --show  # the table")


if __name__ == "__main__":
    main()
