"""Trains and scores all models of a protocol; goes on where it stopped."""

import time
from typing import Any

from training.recipes.recipe import Recipe
from training.research.protocols.collections import collection_scores, summary
from training.research.protocols.ledger import Ledger
from training.research.protocols.members import (
    NUM_FOLDS,
    Member,
    check_members,
    members_of,
)
from training.research.protocols.query_scores import (
    load_rates,
    save_query_scores,
)
from training.runs.best_evaluation import solved_problems
from training.runs.distribution import NONE, Distribution
from training.runs.kept_embeddings import load_test_embeddings
from training.runs.run_directory import RunDirectory, write_json
from training.runs.train_run import run_settings, train_run

SELECTED_ON = {
    "fair": "held-out folds of the training classes",
    "conventional": "the test data itself",
    "single": "classes that are neither trained with nor scored",
}


def train_recipe(
    recipe: Recipe,
    directory: RunDirectory,
    *,
    distribution: Distribution = NONE,
) -> dict:
    """Reads a recipe's data and runs its protocol; see `train_run`."""
    from training.recipes.data import load_splits, read_recipe

    if recipe.protocol == "single":
        return train_run(
            recipe, load_splits(recipe), directory, distribution=distribution
        )
    splits = read_recipe(recipe, lambda found: check_members([recipe], found))
    directory.begin(run_settings(recipe, distribution))
    return run_protocol(recipe, splits, directory, distribution=distribution)


def run_protocol(
    recipe: Recipe,
    splits: Any,
    directory: RunDirectory,
    *,
    distribution: Distribution = NONE,
) -> dict[str, Any]:
    """Trains the members of a protocol that are missing, scores them all.

    - Fair: the training classes are cut into 4 folds; of each fold's models
      the weights that are best on the fold are kept. Scored are all
      `repeats`^4 collections of one model per fold.
    - Conventional: the weights that are best on the test data are kept;
      the scores say so (`selected_on`), and `best` is the best model's.
    - Single: the validation classes of the data set choose, or one fold of
      the training classes; `repeats` models are scored on their own.

    Args:
        recipe: The settings.
        splits: `RetrievalSplits` as the data set has them; their validation
            side counts for the protocol `"single"` only.
        directory: Holds `members/`, `ledger.jsonl` and `scores.json`. It
            has begun already; see `RunDirectory.begin`.
        distribution: Devices to train on; one by default.

    Returns:
        What stands in `scores.json`.

    Reference:
        Musgrave et al., A Metric Learning Reality Check (ECCV 2020),
        section 4.
    """
    ledger = Ledger(directory.path)
    members = members_of(recipe)
    missing = [m for m in members if not ledger.is_finished(m)]
    if len(missing) < len(members):
        done = len(members) - len(missing)
        print(f"{directory.path}: {done} of {len(members)} models are there")
    for member in missing:
        train_member(member, splits, ledger, distribution=distribution)
    return score_members(recipe, splits, directory)


def train_member(
    member: Member,
    splits: Any,
    ledger: Ledger,
    *,
    distribution: Distribution = NONE,
) -> None:
    """Trains one model of a protocol, or goes on with it.

    Args:
        member: Which one.
        splits: The data set, see `run_protocol`.
        ledger: Account of its cell.
        distribution: Devices to train on; one by default.
    """
    directory = ledger.directory(member)
    if not directory.is_finished:
        begin = time.monotonic()
        scores = train_run(
            member.recipe,
            member.splits(splits),
            directory,
            label=f"{ledger.folder.name} {member.name}",
            keep_embeddings=True,
            distribution=distribution,
        )
        ledger.record(member, time.monotonic() - begin, scores)
    save_query_scores(directory.path, splits)


def score_members(
    recipe: Recipe, splits: Any, directory: RunDirectory
) -> dict[str, Any]:
    """Scores the trained members of a protocol; writes `scores.json`.

    Args:
        recipe: The settings.
        splits: The data set, see `run_protocol`.
        directory: The protocol's folder, all its members finished.
    """
    ledger = Ledger(directory.path)
    members = members_of(recipe)
    scores = {
        "protocol": recipe.protocol,
        "selected_on": SELECTED_ON[recipe.protocol],
        "num_models": len(members),
        "seconds": round(ledger.seconds(), 1),
        **_scored(recipe, members, splits, ledger),
    }
    if recipe.samples_proxies:
        histories = [ledger.directory(m).read_history() for m in members]
        found = [solved_problems(h, recipe.chosen_by) for h in histories]
        scores |= {name: [one[name] for one in found] for name in found[0]}
    write_json(directory.scores, scores)
    return scores


def _scored(recipe, members, splits, ledger):
    folders = [ledger.directory(member).path for member in members]
    if recipe.protocol != "fair":
        scores, sizes = zip(*map(load_rates, folders), strict=True)
        part = {"single": summary(scores, sizes[0])}
        if recipe.protocol == "conventional":
            # What conventional tables print.
            part["best"] = max(scores, key=lambda one: one[recipe.chosen_by])
        return part
    found = [load_test_embeddings(folder) for folder in folders]
    repeats = recipe.repeats
    folds = [
        found[fold * repeats : (fold + 1) * repeats]
        for fold in range(NUM_FOLDS)
    ]
    return collection_scores(folds, splits)
