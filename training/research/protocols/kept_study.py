"""A study's finished models in one small file: all but their weights.

It stands beside the study's page: every setting, evaluation and query's score
that the page is made of, and from where the study goes on elsewhere.
"""

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from training.datasets.archives import unpacked
from training.recipes.recipe import Recipe
from training.research.protocols.ledger import Ledger
from training.research.protocols.members import members_of
from training.research.protocols.query_scores import FILE
from training.runs.run_directory import RunDirectory, write_text

ENDING = ".tar.xz"
# Settings that say where something lies; their names alone are kept.
PLACES = ("data_dir", "backbone_weights")


def keep_study(folder: Path, file: Path) -> bool:
    """Writes the finished models of a study to one file.

    The same models give the same bytes.

    Args:
        folder: The study's folder.
        file: Where to; ends `.tar.xz`.

    Returns:
        Whether there was something to keep. Models that are joined to
        collections need their embeddings, which are large: studies of the
        fair protocol are not kept.
    """
    kept: dict[str, bytes] = {}
    for path in sorted(folder.iterdir()):
        directory = RunDirectory(path)
        if not directory.settings.exists():
            continue
        recipe = directory.read_recipe()
        ledger = Ledger(path)
        finished = [m for m in members_of(recipe) if ledger.is_finished(m)]
        if recipe.protocol == "fair":
            return False
        if not finished:
            continue
        files = [ledger.file, directory.settings]
        files += [directory.scores] if directory.is_finished else []
        for member in finished:
            run = ledger.directory(member)
            files += [run.settings, run.scores, run.path / FILE]
            # An untrained one was never evaluated.
            files += [run.history] if run.history.exists() else []
        for one in files:
            content = one.read_bytes()
            if one.name == directory.settings.name:
                content = _placeless(content)
            kept[str(one.relative_to(folder))] = content
    if kept:
        # The package brings Keras along: not for an error or --help.
        from keras_gsp.storage.whole import whole_file

        with whole_file(file) as aside:
            _pack(aside, kept)
    return bool(kept)


def bring_back(
    file: Path,
    folder: Path,
    cells: Mapping[str, Recipe],
    others: Mapping[str, Recipe],
) -> dict[str, Recipe]:
    """Puts kept models into a study's folder where it lacks them.

    Args:
        file: What `keep_study` wrote.
        folder: The study's folder.
        cells: Name of a cell's folder -> the recipe to go on with.
        others: Likewise of the study's other cells. They come along, so that
            what is kept of the folder next has them too; those of another
            recipe or data set stay in the file.

    Returns:
        Which of the others came along, and the recipes of their models.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that is no archive or holds no study, or models of
            another recipe or data set; before anything is written.
    """
    source = unpacked(file)
    found, along = (
        {
            name: RunDirectory(source / name)
            for name in names
            if (source / name / "settings.json").is_file()
        }
        for names in (cells, others)
    )
    if not found and not along:
        raise ValueError(
            "`kept` must be a file that `python -m training.research.results` wrote "
            f"for this study. Received: {file}, which has none of its cells."
        )
    for name, directory in found.items():
        differing = _differing(directory, cells[name])
        if differing:
            raise ValueError(
                "`kept` must hold models of this very study. Received: "
                f"{file}, where {name} has {differing}."
            )
    for name, directory in found.items():
        _bring_back_cell(directory, folder / name, cells[name])
    brought = {}
    for name, directory in along.items():
        differing = _differing(directory, others[name])
        if differing:
            print(f"{name} stays in {file.name}: it has {differing}")
            continue
        here = RunDirectory(folder / name)
        # The folder may have gone on with more seeds.
        there = [one for one in (directory, here) if one.settings.exists()]
        brought[name] = replace(
            others[name],
            repeats=max(one.read_recipe().repeats for one in there),
        )
        _bring_back_cell(directory, folder / name, brought[name])
    return brought


def _bring_back_cell(source, folder, recipe):
    kept, here = Ledger(source.path), Ledger(folder)
    missing = [
        member
        for member in members_of(source.read_recipe())
        if kept.is_finished(member) and not here.is_finished(member)
    ]
    for member in missing:
        _copy(kept.directory(member), here.directory(member), recipe)
        with here.file.open("a") as file:
            for line in kept.lines():
                if line["member"] == member.name:
                    file.write(json.dumps(line) + "\n")
    target = RunDirectory(folder)
    if missing and not target.settings.exists():
        write_text(target.settings, _placed(source, recipe))


def _copy(source: RunDirectory, target: RunDirectory, recipe: Recipe) -> None:
    """The scores last: they make a run finished."""
    target.path.mkdir(parents=True, exist_ok=True)
    write_text(target.settings, _placed(source, recipe))
    for file in (source.history, source.path / FILE, source.scores):
        if file.exists():
            (target.path / file.name).write_bytes(file.read_bytes())


def _differing(directory, recipe):
    """The first setting that differs, as words; empty where none does."""
    saved = directory.read_recipe()
    for name, value in vars(recipe).items():
        there, ours = getattr(saved, name), value
        if name == "repeats":
            continue
        if name in PLACES:
            there, ours = _stem(there), _stem(ours)
        if there != ours:
            return f"{name}={there!r} instead of {ours!r}"
    return ""


def _stem(place):
    return place and Path(place).name.partition(".")[0]


def _placeless(content: bytes) -> bytes:
    settings = json.loads(content)
    for name in PLACES:
        place = settings["recipe"].get(name)
        settings["recipe"][name] = place and Path(place).name
    settings.get("environment", {}).pop("platform", None)
    return _text(settings).encode()


def _placed(directory, recipe):
    settings = directory.read_settings()
    settings["recipe"] |= {name: getattr(recipe, name) for name in PLACES}
    return _text(settings)


def _text(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _pack(path, contents):
    """Neither times nor owners: they would change the bytes."""
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
