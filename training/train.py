"""Trains a recipe: `python -m training.train glyphs --pooling gsp`."""

import hashlib
import json
import shlex
import sys
import textwrap
import warnings
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from training.recipes.recipe import CHOICES, Recipe, Settings, named, names
from training.runs.command_line import run_command
from training.runs.distribution import Distribution, Kind
from training.runs.run_directory import RunDirectory
from training.runs.scoring import score_lines
from training.runs.train_run import run_settings, train_run
from training.runs.verdict import has_gained, untrained_command

LONGEST_NAME = 40


@dataclass(frozen=True, kw_only=True)
class TrainCommand(Settings):
    """Trains a recipe and scores it on unseen classes."""

    name: str | None = None
    """Name of the run; by default the recipe and the changed settings."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    distribution: Kind = "none"
    """On JAX: use all devices, with copies of the weights (data) or with
    proxies split by class (model)."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name, *options = arguments or [""]
    if name in ("", "-h", "--help"):
        print(listing())
        sys.exit(0 if name else 2)
    run_command(
        f"train {name}",
        TrainCommand.__doc__,
        TrainCommand,
        lambda command: _train(name, command, options),
        options,
        lambda: TrainCommand(**named(name).settings),
    )


def recipe_of(name: str, command: Settings, options: list[str]) -> Recipe:
    """Returns the recipe of a name with the options of a command line.

    A choice among the options, such as a loss, implies further settings; the
    options replace these.
    """
    words = [word[2:].partition("=")[0] for word in options if word[:2] == "--"]
    settings = {word.removeprefix("no-").replace("-", "_") for word in words}
    settings &= Recipe().settings.keys()
    changed: dict[str, Any] = {one: getattr(command, one) for one in settings}
    choices = {key: changed[key] for key in CHOICES if key in changed}
    base = named(name, **choices)
    steps = changed.get("steps", base.steps)
    every = changed.get("steps_per_evaluation", base.steps_per_evaluation)
    if steps > every and steps % every:
        changed["steps"] = every * -(-steps // every)
        warnings.warn(
            f"{steps} steps become {changed['steps']}: the last of every "
            f"{every} is evaluated (--steps-per-evaluation).",
            stacklevel=2,
        )
    return base.with_(**changed)


def changed_settings(name: str, recipe: Recipe) -> dict[str, Any]:
    """Returns what differs from the recipe of a name, without seed and data.

    Settings that a choice of loss or method implies are not listed.
    """
    plain = named(name)
    choices = {choice: getattr(recipe, choice) for choice in CHOICES}
    choices = {k: v for k, v in choices.items() if v != getattr(plain, k)}
    implied = named(name, **choices).settings
    return choices | {
        setting: value
        for setting, value in recipe.settings.items()
        if setting not in ("seed", "data_dir") and value != implied[setting]
    }


def run_name(name: str, recipe: Recipe) -> str:
    """Names a run after its recipe, every changed setting, and the seed.

    Where these take more than `LONGEST_NAME` letters, or are files, a digest
    stands for them.
    """
    changed = changed_settings(name, recipe)
    parts = [f"{setting}={value}" for setting, value in changed.items()]
    label = ",".join([name, *parts, f"seed={recipe.seed}"])
    if len(label) <= LONGEST_NAME and not {*label} & {*"/{[ "}:
        return label
    content = json.dumps(changed, sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    return f"{name},{digest},seed={recipe.seed}"


def listing() -> str:
    """Lists the names of all recipes, a paragraph for each data set."""
    lines = [
        "usage: python -m training.train RECIPE [options]\n",
        "Recipes by data set; each has --help. Options change them:",
        "  python -m training.train glyphs --loss ms --pooling gsp",
    ]
    known = names()
    for dataset, group in groupby(known, known.__getitem__):
        words = textwrap.fill("  ".join(group), 77, break_on_hyphens=False)
        lines += ["", dataset, textwrap.indent(words, "  ")]
    return "\n".join(lines)


def run_report(directory: RunDirectory, scores: dict) -> str:
    """Formats the scores of a finished run, next commands and the verdict."""
    word = shlex.quote(str(directory.path))
    lines = [
        f"{directory.path}: {scores['num_queries']} images of unseen classes",
        *(f"  {line}" for line in score_lines(scores)),
        "\nNext:",
        f"  python -m training.report {word}",
        f"  python -m training.evaluate {word} --split all",
        f"  python -m training.export {word} --index exact",
    ]
    recipe = directory.read_recipe()
    is_better = has_gained(scores)
    if recipe.data_dir is not None and not is_better:
        where = shlex.quote(recipe.data_dir)
        lines.append(f"  python -m training.advise --data-dir {where}")
        if recipe.backbone_weights not in (None, "imagenet"):
            weights = shlex.quote(recipe.backbone_weights)
            lines[-1] += f" --backbone-weights {weights}"
    lines.append(f"\n{scores['verdict']}")
    if scores["steps"] and scores["gain"] is not None and not is_better:
        lines.append("These commands export them:")
        lines.append(untrained_command(directory, scores))
    return "\n".join(lines)


def _train(name, command, options):
    recipe = recipe_of(name, command, options)
    distribution = Distribution(command.distribution)
    # Keras takes seconds to import: not for an error or for --help.
    from training.recipes import data

    data.check_sources(recipe)
    with distribution.together():
        classes = None
        if command.name is not None:
            classes = RunDirectory(command.runs / command.name).read_classes()
        if not any("classes-per-batch" in word for word in options):
            recipe = data.fitted_to_classes(recipe, classes)
        label = command.name or run_name(name, recipe)
        directory = RunDirectory(command.runs / label)
        if distribution.num_processes == 1:
            directory.check(run_settings(recipe))
        distribution.check(recipe)
        splits = data.load_splits(recipe, directory.read_classes())
        scores = train_run(recipe, splits, directory, distribution=distribution)
        if distribution.is_first:
            print(run_report(directory, scores))


if __name__ == "__main__":
    main()
