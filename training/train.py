"""Trains a recipe: `python -m training.train glyphs --pooling gsp`."""

import shlex
import sys
import textwrap
from argparse import ArgumentParser
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import tyro

from training.recipes.named import CHOICES, named, names
from training.recipes.recipe import Recipe
from training.recipes.settings import GROUPS, Settings
from training.runs.command_line import run_command
from training.runs.distribution import Distribution, Kind
from training.runs.run_directory import RunDirectory
from training.runs.scoring import score_lines
from training.runs.train_run import run_settings, train_run


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

    @property
    def recipe(self) -> Recipe:
        """The recipe with these settings, checked."""
        return Recipe(**{group: getattr(self, group) for group in GROUPS})


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    given = sys.argv[1:] if arguments is None else arguments
    name, *options = given or [""]
    if name in ("", "-h", "--help"):
        print(listing())
        sys.exit(0 if name else 2)

    def command():
        base = _base(name, options)
        groups = {group: getattr(base, group) for group in GROUPS}
        return tyro.conf.OmitArgPrefixes[TrainCommand], TrainCommand(**groups)

    run_command(
        f"train {name}",
        TrainCommand.__doc__,
        command,
        lambda command: _train(name, command),
        options,
    )


def run_name(name: str, recipe: Recipe) -> str:
    """Names a run after its recipe, every changed setting, and the seed.

    Settings that a choice of loss or method implies are not listed.
    """
    choices, implied = _implied(name, recipe)
    parts = [name, *(f"{choice}={word}" for choice, word in choices.items())]
    for setting, value in recipe.settings.items():
        before = getattr(implied, setting)
        if isinstance(value, dict):
            option = setting.removesuffix("_arguments")
            changed = value.items() - before.items()
            parts += [f"{option}.{key}={one}" for key, one in sorted(changed)]
        elif setting not in ("seed", "data_dir") and value != before:
            # The name of a file without its folders.
            parts.append(f"{setting}={str(value).rpartition('/')[2]}")
    return ",".join([*parts, f"seed={recipe.seed}"])


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
        f"\n{scores['verdict']}",
    ]
    return "\n".join(lines)


def _base(name, options):
    """The named recipe with all that its choices among the options imply."""
    first = ArgumentParser(add_help=False, allow_abbrev=False)
    for choice in CHOICES:
        first.add_argument(f"--{choice}")
    choices = vars(first.parse_known_args(options)[0])
    return named(name, **{k: v for k, v in choices.items() if v is not None})


def _implied(name, recipe):
    """The choices of a recipe, and the recipe that they make of a name."""
    plain = named(name)
    found = {choice: getattr(recipe, choice) for choice in CHOICES}
    choices = {k: v for k, v in found.items() if v != getattr(plain, k)}
    return choices, named(name, **choices)


def _train(base, command):
    recipe, distribution = command.recipe, Distribution(command.distribution)
    # Keras takes seconds to import: not for an error or for --help.
    from training.recipes import data

    data.check_sources(recipe)
    with distribution.together():
        _, implied = _implied(base, recipe)
        if recipe.classes_per_batch == implied.classes_per_batch:
            recipe = data.fitted_to_classes(recipe)
        name = command.name or run_name(base, recipe)
        directory = RunDirectory(command.runs / name)
        if distribution.num_processes == 1:
            directory.check(run_settings(recipe))
        distribution.check(recipe)
        splits = data.load_splits(recipe)
        scores = train_run(recipe, splits, directory, distribution=distribution)
        if distribution.is_first:
            print(run_report(directory, scores))


if __name__ == "__main__":
    main()
