"""Trains a recipe: `python -m training.train glyphs --pooling gsp`."""

import difflib
import shlex
import sys
import textwrap
from argparse import ArgumentParser
from dataclasses import dataclass, make_dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, get_type_hints

import tyro

from training.recipes.named import CHOICES, named, names
from training.recipes.recipe import Recipe
from training.recipes.settings import GROUPS, Settings
from training.runs.command_line import printed_notes
from training.runs.distribution import Distribution, Kind
from training.runs.run_directory import RunDirectory
from training.runs.scoring import score_lines
from training.runs.train_run import ERRORS, run_settings, train_run

PROGRAM = "python -m training.train"
# Options that --help shows; --help-all shows the others too.
SHOWN = (
    *("data_dir", "crop_size", "backbone", "backbone_weights"),
    *("frozen", "pooling", "embedding_size"),
    *("loss", "loss_arguments", "pooling_arguments"),
    *("regularizer", "memory", "ccp", "classes_per_batch"),
    *("samples_per_class", "steps", "learning_rate", "seed"),
    *("name", "runs"),
)


@dataclass(frozen=True, kw_only=True)
class TrainCommand(Settings):
    """Trains a recipe and scores it on unseen classes."""

    name: str | None = None
    """Name of the run; by default the recipe and the changed settings."""
    runs: Path = Path("runs")
    """Folder of the runs."""
    distribution: Kind = "none"
    """Devices of this host to train on: one; all on JAX, with copies (data)
    or with proxies cut by class (model); all on TensorFlow (mirrored)."""
    model_devices: int = 2
    """model: parts that proxies and class embeddings are cut into."""

    @property
    def recipe(self) -> Recipe:
        """The recipe with these settings, checked."""
        return Recipe(**{group: getattr(self, group) for group in GROUPS})


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    try:
        base, command = _parse(arguments)
        recipe = command.recipe
        distribution = Distribution(command.distribution, command.model_devices)
        from training.recipes.data import check_sources, fitted_to_classes

        check_sources(recipe)
        with printed_notes(), distribution.together():
            _, implied = _implied(base, recipe)
            if recipe.classes_per_batch == implied.classes_per_batch:
                recipe = fitted_to_classes(recipe)
            name = command.name or run_name(base, recipe)
            directory = RunDirectory(command.runs / name)
            _train(recipe, directory, distribution)
    except ERRORS as error:
        sys.exit(f"error: {error}")


def run_name(name: str, recipe: Recipe) -> str:
    """Names a run after its recipe, every changed setting, and the seed.

    Settings that a choice of loss or method implies are not listed.
    """
    choices, implied = _implied(name, recipe)
    base = implied.settings
    parts = [name, *(f"{choice}={word}" for choice, word in choices.items())]
    for setting, value in recipe.settings.items():
        before = base[setting]
        if setting.endswith("_arguments"):
            option = setting.removesuffix("_arguments")
            parts += [
                f"{option}.{key}={one}"
                for key, one in value.items()
                if before[key] != one
            ]
        elif setting not in ("seed", "data_dir", *choices):
            if value != before:
                # The name of a file without its folders.
                parts.append(f"{setting}={str(value).rpartition('/')[2]}")
    return ",".join([*parts, f"seed={recipe.seed}"])


def _implied(name, recipe):
    """The choices of a recipe, and the recipe that they make of a name."""
    plain = named(name)
    found = {choice: getattr(recipe, choice) for choice in CHOICES}
    choices = {k: v for k, v in found.items() if v != getattr(plain, k)}
    return choices, named(name, **choices)


def listing() -> str:
    """Lists the names of all recipes, a paragraph for each data set."""
    lines = [
        f"usage: {PROGRAM} RECIPE [options]",
        "",
        "Recipes by data set; each has --help. Options change them:",
        f"  {PROGRAM} glyphs --loss ms --pooling gsp --regularizer zsr",
    ]
    known = names()
    for dataset, group in groupby(known, known.__getitem__):
        words = textwrap.fill(
            "  ".join(group),
            width=79,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        lines += ["", dataset, words]
    return "\n".join(lines)


def _parse(arguments):
    """The recipe's name and the command."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "--help-all"):
        print(listing())
        sys.exit(0 if arguments else 2)
    name, *options = arguments
    if name not in names():
        similar = difflib.get_close_matches(name, names(), n=5, cutoff=0.4)
        hint = f" Similar: {', '.join(similar)}." if similar else ""
        raise ValueError(
            "The first argument must name a recipe; --help lists them. "
            f"Received: {name}.{hint}"
        )
    first = ArgumentParser(add_help=False, allow_abbrev=False)
    for choice in CHOICES:
        first.add_argument(f"--{choice}", default=None)
    choices = vars(first.parse_known_args(options)[0])
    base = named(name, **{k: v for k, v in choices.items() if v is not None})
    groups = {group: getattr(base, group) for group in GROUPS}
    kind: Any = TrainCommand
    if "--help-all" in options:
        options = ["--help"]
    elif "--help" in options or "-h" in options:
        kind = _brief(TrainCommand)
        groups = {k: _brief(type(v))(**vars(v)) for k, v in groups.items()}
    command = tyro.cli(
        kind,
        default=kind(**groups),
        prog=f"{PROGRAM} {name}",
        description=f"{TrainCommand.__doc__} --help-all shows every option.",
        args=options,
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return name, command


def _brief(kind: Any) -> Any:
    """A dataclass with all but the most used fields left out of --help."""
    hide: Any = tyro.conf.Suppress
    hidden = [
        (name, hide[hint], getattr(kind, name))
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if name not in (*SHOWN, *GROUPS)
    ]
    return make_dataclass(
        kind.__name__,
        hidden,
        bases=(kind,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": kind.__doc__},
    )


def _train(recipe, directory, distribution):
    from training.recipes.data import load_splits

    if distribution.num_processes == 1:
        directory.check(run_settings(recipe))
    distribution.check(recipe)
    splits = load_splits(recipe)
    scores = train_run(recipe, splits, directory, distribution=distribution)
    if distribution.is_first:
        print(run_report(directory, scores))


def run_report(directory: RunDirectory, scores: dict) -> str:
    """Formats the scores of a finished run and the next commands."""
    path = directory.path
    word = shlex.quote(str(path))
    lines = [
        f"{path}: {scores['num_queries']} images of unseen classes",
        *(f"  {line}" for line in score_lines(scores)),
        "\nNext:",
        f"  python -m training.report {word}",
        f"  python -m training.evaluate {word} --split all",
        f"  python -m training.export {word} --index exact",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
