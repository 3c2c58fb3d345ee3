"""Trains a table of methods: `python -m training.research.study glyphs`.

Each cell of the table first chooses its learning rate: five rates, a factor 3
apart, are trained with one seed, on every fold where a study has folds, and
compared on the validation classes. A best rate at an end of the grid adds rates
beyond it. Then every seed is trained at the chosen rate, and its best weights
are scored on the test classes once. A run is a folder,
`runs/STUDY/ROW.METHOD/RUN`; finished runs are not repeated, killed ones resume,
and several processes may train one study.
"""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import tyro

from training.datasets.image_set import RetrievalSplits
from training.recipes.data import check_classes, check_sources, read_recipe
from training.recipes.recipe import Recipe
from training.recipes.settings import not_negative, positive
from training.research.studies import STUDIES, UNTRAINED, Study
from training.runs.command_line import run_command
from training.runs.progress import best_evaluation
from training.runs.run_directory import RunDirectory
from training.runs.run_lock import RunTakenError, run_lock
from training.runs.scoring import FILE as EMBEDDINGS
from training.runs.scoring import load_test_embeddings
from training.runs.train_run import train_run

NUM_RATES, FACTOR, LARGEST_GRID = 5, 3.0, 11
MEASURES = ("map_at_r", "precision_at_r", "precision_at_1")
QUERIES = "query_scores.npz"


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
    """Number of seeds; the study's own by default. More can follow later."""
    first_seed: Annotated[int, not_negative] = 0
    """The first of these seeds. It chooses the learning rate."""
    steps: Annotated[int | None, positive] = None
    """Training steps of each run; the study's own by default."""
    name: str | None = None
    """Name of the study's folder; by default its own."""
    runs: Path = Path("runs")
    """Folder that holds the study's folder."""


@dataclass(frozen=True)
class Run:
    """One training run of a cell, in its folder."""

    path: Path
    recipe: Recipe
    fold: int | None = None
    """Fold of the training classes that validates; None: the validation
    classes of the data set, or the recipe's own fold."""
    is_search: bool = False
    """It compares learning rates: scored on validation classes."""
    search: Path | None = None
    """Folder of a search that may have trained the same recipe."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing of the run is missing."""
        directory = RunDirectory(self.path)
        scores = self.path / QUERIES
        return directory.is_finished and (self.is_search or scores.exists())

    def splits(self, splits: RetrievalSplits) -> Any:
        """The data that the run trains on, validates with and is scored on."""
        if self.fold is not None or splits.validation is None:
            fold = self.recipe.validation_fold
            splits = splits.with_validation(
                self.recipe.validation_folds,
                fold if self.fold is None else self.fold,
            )
        if not self.is_search:
            return splits
        # The validation side is scored instead of the test classes.
        scored = {"test": splits.validation, "query": None, "gallery": None}
        return SimpleNamespace(**vars(splits) | scored)

    def train(self, splits: RetrievalSplits) -> None:
        """Trains and scores it; `RunTakenError` if another process does."""
        directory = RunDirectory(self.path)
        own = self.splits(splits)
        self._take_search()
        if not directory.is_finished:
            train_run(
                self.recipe,
                own,
                directory,
                label=f"{self.path.parent.name} {self.path.name}",
                keep_embeddings=not self.is_search,
            )
        if not self.is_search:
            # Two processes may find it trained and not scored.
            with run_lock(self.path):
                if not self.is_finished:
                    _score_queries(self.path, splits)

    def validation_score(self) -> float:
        """The best validation score; -inf where training diverged or had none."""
        history = RunDirectory(self.path).read_history()
        if not history:
            return -np.inf
        found = best_evaluation(history, self.recipe.chosen_by)
        score = found.get(f"val_{self.recipe.chosen_by}", -np.inf)
        return float(score) if np.isfinite(score) else -np.inf

    def _take_search(self):
        """Copies the search of the same recipe: only its scores are missing."""
        if (
            self.search is None
            or not self.search.exists()
            or self.path.exists()
            or RunDirectory(self.search).read_recipe() != self.recipe
        ):
            return
        with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
            aside = Path(shutil.copytree(self.search, Path(folder) / "run"))
            RunDirectory(aside).scores.unlink()
            aside.rename(self.path)


class Cell:
    """The runs of one recipe of a study, in the cell's folder.

    The recipe's learning rate is the middle of the grid. The first seed
    searches; with `num_folds`, it and every seed train one model a fold.
    """

    def __init__(
        self, folder: Path, recipe: Recipe, seeds: range, num_folds: int = 0
    ) -> None:
        self.folder, self.recipe = folder, recipe
        self.seeds, self.num_folds = seeds, num_folds

    def chosen_rate(self) -> float | None:
        """The best rate of a search that is complete; else None."""
        if self.recipe.steps == 0:
            return self.recipe.learning_rate
        steps = self._steps()
        if not all(map(self._is_searched, steps)):
            return None
        return self._rate(max(steps, key=self._score))

    def runs(self) -> list[Run]:
        """The runs at the chosen rate, seed by seed; none while it is open."""
        rate = self.chosen_rate()
        if rate is None:
            return []
        if not self.recipe.steps:
            seeds = self.seeds
            if self.recipe.frozen != "none":
                seeds = seeds[:1]  # Pretrained features depend on no seed.
            return [self._run(rate, seed, None) for seed in seeds]
        runs = [
            self._run(rate, seed, fold)
            for seed in self.seeds
            for fold in self._folds
        ]
        paths = [one.path for one in self._searches(rate)]
        return [
            replace(run, search=path) for run, path in zip_longest(runs, paths)
        ]

    def missing(self) -> list[Run]:
        """Runs that can be trained now: searches first, then all seeds."""
        runs = self.runs()
        if not runs:
            rates = map(self._rate, self._steps())
            runs = [run for rate in rates for run in self._searches(rate)]
        return [run for run in runs if not run.is_finished]

    @property
    def _folds(self):
        return [*range(self.num_folds)] or [None]

    def _steps(self):
        """Exponents of the grid, with those that a best end has added."""
        low, high = -(NUM_RATES // 2), NUM_RATES // 2
        while high - low + 1 < LARGEST_GRID:
            steps = range(low, high + 1)
            if not all(map(self._is_searched, steps)):
                return steps
            best = max(steps, key=self._score)
            if best not in (low, high):
                return steps
            low, high = low - (best == low), high + (best == high)
        return range(low, high + 1)

    def _rate(self, step):
        return float(f"{self.recipe.learning_rate * FACTOR**step:.3g}")

    def _is_searched(self, step):
        return all(run.is_finished for run in self._searches(self._rate(step)))

    def _score(self, step):
        """The validation score of a rate, the mean over folds."""
        runs = self._searches(self._rate(step))
        return float(np.mean([run.validation_score() for run in runs]))

    def _searches(self, rate):
        """The search of a rate: the first seed, each fold."""
        found = []
        for fold in self._folds:
            run = self._run(rate, self.seeds[0], fold)
            ending = f"-fold{fold}" if fold else ""
            path = self.folder / f"search-rate{rate:g}{ending}"
            found.append(Run(path, run.recipe, fold, is_search=True))
        return found

    def _run(self, rate, seed, fold):
        name = f"seed{seed}" if fold is None else f"seed{seed}-fold{fold}"
        own: dict[str, Any] = {"seed": seed, "learning_rate": rate}
        if fold is not None:
            own["validation_folds"] = self.num_folds
        return Run(self.folder / name, self.recipe.with_(**own), fold)


def run_study(command: StudyCommand) -> Path:
    """Trains the missing runs of a study.

    The cell with the fewest finished runs goes first, so that a study that is
    stopped early has a table. Returns the study's folder.
    """
    study = chosen_study(command)
    folder = command.runs / (command.name or command.study)
    cells = [*cells_of(study, folder, command.first_seed).values()]
    for cell in cells:
        check_sources(cell.recipe)
    splits: dict[Any, RetrievalSplits] = {}
    taken: set[Path] = set()
    while run := _next_run(cells, taken):
        key = _data_of(run.recipe)
        if key not in splits:
            splits[key] = _read(study, [c.recipe for c in cells], key)
        try:
            run.train(splits[key])
        except FileExistsError as error:
            # Another process trains the run, or has just finished it.
            is_finished = RunDirectory(run.path).is_finished
            if not isinstance(error, RunTakenError) and not is_finished:
                raise
        if run.is_finished:
            score = run.validation_score()
            text = f"validation MAP@R {score:.4f}"
            print(f"{run.path}: {text if score >= 0 else 'scored'}", flush=True)
        else:
            taken.add(run.path)
    if taken:
        print(f"runs left to other processes: {len(taken)}")
    return folder


def _data_of(recipe):
    """What recipes share that read the same images, or features of them."""
    one = recipe.encoder
    backbone = one.backbone, one.backbone_width, one.backbone_weights
    return recipe.data, backbone if recipe.cache_features else None


def _read(study, recipes, key):
    """The data of the recipes with this key."""
    own = [one for one in recipes if _data_of(one) == key]
    largest = max(own, key=lambda recipe: recipe.classes_per_batch)
    run = Run(Path(), largest, 0 if study.num_folds else None)
    return read_recipe(
        largest, lambda splits: check_classes(largest, run.splits(splits))
    )


def _next_run(cells, taken):
    """The first missing run of the cell with the fewest finished ones."""
    candidates = []
    for cell in cells:
        missing = [run for run in cell.missing() if run.path not in taken]
        if missing:
            finished = len([*cell.folder.glob("*/scores.json")])
            candidates.append((finished, missing[0]))
    return min(candidates, key=lambda two: two[0])[1] if candidates else None


def chosen_study(command: StudyCommand) -> Study:
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
    own: dict[str, Any] = {
        name: getattr(command, name)
        for name in ("data_dir", "backbone_weights")
        if getattr(command, name) is not None
    }
    cells = {}
    for (row, method), recipe in study.cells.items():
        is_chosen = row in (command.losses or [row])
        if (row, method) == UNTRAINED:
            cells[row, method] = recipe.with_(**own)
        elif is_chosen and method in (command.methods or [method]):
            steps = command.steps or recipe.steps
            every = min(recipe.steps_per_evaluation, steps)
            cells[row, method] = recipe.with_(
                **own, steps=steps, steps_per_evaluation=every
            )
    return replace(study, cells=cells, seeds=command.seeds or study.seeds)


def cells_of(
    study: Study, folder: Path, first_seed: int = 0
) -> Mapping[tuple[str, str], Cell]:
    """(row, method) -> the runs of a study in a folder."""
    seeds = range(first_seed, first_seed + study.seeds)
    return {
        (row, method): Cell(
            folder / f"{row}.{method}", recipe, seeds, study.num_folds
        )
        for (row, method), recipe in study.cells.items()
    }


def query_scores(
    embeddings: Mapping[str, np.ndarray], splits: RetrievalSplits
) -> dict[str, np.ndarray]:
    """`labels` and `MEASURES` of every query, each (num_queries,).

    `embeddings` are those of `test`, or of `query` and `gallery`.
    """
    import keras_gsp as gsp

    queries, side, gallery = splits.test, "test", {}
    if splits.query is not None:
        queries, side = splits.query, "query"
        gallery = {
            "gallery_embeddings": embeddings["gallery"],
            "gallery_labels": splits.gallery.labels,
        }
    found = gsp.metrics.retrieval_scores(
        embeddings[side], queries.labels, per_query=True, **gallery
    )["per_query"]
    return {"labels": queries.labels} | {m: found[m] for m in MEASURES}


def _score_queries(path, splits):
    """Keeps each query's scores; of embeddings only what folds need."""
    embeddings = load_test_embeddings(path)
    _save(path / QUERIES, query_scores(embeddings, splits))
    if "-fold" not in path.name:
        (path / EMBEDDINGS).unlink()
        return
    seed = path.name.partition("-")[0]
    folds = sorted(path.parent.glob(f"{seed}-fold*/{EMBEDDINGS}"))
    if len(folds) == RunDirectory(path).read_recipe().validation_folds:
        # The models of all folds together: their embeddings side by side.
        parts = [load_test_embeddings(one.parent) for one in folds]
        joined = {
            side: np.concatenate([part[side] for part in parts], axis=1)
            for side in parts[0]
        }
        together = query_scores(joined, splits)
        _save(path.parent / f"{seed}-{QUERIES}", together)


def _save(path, arrays):
    # The package imports Keras: not for an error or --help.
    from keras_gsp.storage.whole import whole_file

    with whole_file(path) as aside, aside.open("wb") as file:
        np.savez(file, **arrays)


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
