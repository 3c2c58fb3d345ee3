"""The studies of `studies.toml`: tables of recipes."""

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.recipes.choices import is_proxy_loss
from training.recipes.named import PUBLISHED, named
from training.recipes.recipe import Recipe

# Pretrained networks of studies, beside their records.
WEIGHTS = Path(__file__).parents[2] / "docs" / "results" / "weights"
CHARACTERS, PICTURES = "characters", "pictures"
TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
METHODS: dict[str, dict[str, Any]] = TABLES["method"]
# The baseline of every table: raw features, averaged and normalized.
UNTRAINED = ("-", "untrained")
NEAR = 0.003
"""Rates this close to the best validation score count as best too."""


OPTIONS = "search_seeds", "near", "pretrainings"


def method_of(key: tuple[str, str]) -> str:
    """The method of a cell, without the number of its settings."""
    return key[1].partition("@")[0]


@dataclass(frozen=True)
class Study:
    """A table of recipes: title and text of its page, and its cells."""

    title: str
    cells: Mapping[tuple[str, str], Recipe] = field(default_factory=dict)
    """(row, method) -> recipe, the most telling cells first. A row is a loss,
    perhaps with other settings."""
    about: str = ""
    seeds: int = 3
    over: str = "classes"
    """What intervals generalize to beside other models: other `classes`, or
    other `images` of the test classes where these are all there are."""
    num_folds: int = 0
    """With 2 or more, each seed trains one model a fold of the training
    classes, and these are scored alone and together, as in "A Metric Learning
    Reality Check" (Musgrave et al., section 4)."""
    unsearched: Iterable[tuple[str, str]] = ()
    """Cells that train their own learning rate alone."""
    controls: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Cells with a control in place of the regularizer; see
    `training.research.zero_shot_controls`."""
    search_seeds: int = 1
    """Seeds whose mean validation score chooses a rate, and settings."""
    near: float = NEAR
    pretrainings: int = 0
    """Number of pretrained networks, seed after seed in turn."""
    weights: tuple[Path, ...] = ()
    """Files of these networks."""

    @property
    def kept(self) -> tuple[Path, ...]:
        """Files beside the record, of the networks that the study starts from."""
        networks = {
            f"{recipe.backbone}-{CHARACTERS if is_known else PICTURES}"
            for recipe in self.cells.values()
            if (is_known := recipe.backbone_weights == CHARACTERS)
            or recipe.backbone == "picture-cnn"
        }
        return tuple(
            WEIGHTS / f"{name}-{number}.weights.h5"
            for name in networks
            for number in range(self.pretrainings)
        )

    @property
    def rows(self) -> tuple[str, ...]:
        """Rows of the table, in order."""
        return tuple(dict.fromkeys(row for row, _ in self.cells))

    @property
    def methods(self) -> tuple[str, ...]:
        """Columns of the table, in order."""
        return tuple(dict.fromkeys(map(method_of, self.cells)))

    def family(self, key: tuple[str, str]) -> tuple[str, str]:
        """Row and method of a cell."""
        return key[0], method_of(key)

    def rivals(self, key: tuple[str, str]) -> list[tuple[str, str]]:
        """The cells of a row and method: one for each of its settings."""
        family = self.family(key)
        return [one for one in self.cells if self.family(one) == family]


def beside(method: str, study: str = "") -> tuple[str, ...]:
    """Methods that a method is compared with: what it adds one thing to."""
    own = TABLES["study"].get(study, {}).get("methods", {}).get(method, {})
    found = METHODS.get(method, {}) | own
    return () if method == "untrained" else (*found.get("beside", ["gap"]),)


def base_of(name: str) -> Recipe:
    """The recipe of a base; pretrained weights are an option of the command."""
    if name not in TABLES["base"]:
        return named(name).with_(backbone_weights=None)
    own = dict(TABLES["base"][name])
    return _with(base_of(own.pop("from")), own)


def _with(recipe, settings):
    """The recipe with settings of the file, where "" is None."""
    settings = {k: None if v == "" else v for k, v in settings.items()}
    return recipe.with_(**settings)


def _pairs(cells):
    """Every (row, method) of lines `rows: methods`."""
    for line in cells:
        rows, _, methods = line.partition(":")
        yield from itertools.product(rows.split(), methods.split())


def _grid(table):
    """Name -> settings of every row of a study's `grid`."""
    rows = {loss: {"loss": loss} for loss in table.get("loss", ())}
    for word, one in table.items():
        if word != "loss":
            ((setting, values),) = one.items()
            rows = {
                f"{name}-{word}{value:g}": own | {setting: value}
                for name, own in rows.items()
                for value in values
            }
    return rows


def _study(name, table):
    base = _with(base_of(table["base"]), table.get("base_settings", {}))
    grid = _grid(table.get("grid", {}))
    rows = grid | table.get("rows", {})
    cells, unsearched, controls = {UNTRAINED: base.with_(steps=0)}, set(), {}
    lines = [
        one.replace("grid:", f"{' '.join(grid)}:") for one in table["cells"]
    ]
    for row, method in _pairs(lines):
        given = METHODS.get(method, {})
        given = given | table.get("methods", {}).get(method, {})
        own = rows.get(row, {})
        loss = own.get("loss", row)
        if not given:
            given = {"pooling": method}
        if "ccp" in given:
            sampled = TABLES["sampled"] | table.get("sampled", {})
            if is_proxy_loss(loss):
                # Its proxies are the loss's own.
                names = {*table.get("sampled", {}), "ccp_arguments"}
                names.discard("in_batch_weight")
                sampled = {key: sampled[key] for key in names}
            given = sampled | given
        settings = {"loss": loss} | given | own
        settings.pop("beside", None)
        if control := settings.pop("control", ""):
            controls[row, method] = control
        if not settings.pop("search", table.get("search", True)):
            unsearched.add((row, method))
        choices = table.get("settings", {}).get(method, [])
        recipe = _with(base, settings)
        cells.setdefault((row, method), recipe)
        for number, choice in enumerate(choices):
            cells.pop((row, method), None)
            cells[row, f"{method}@{number}"] = _with(recipe, choice)
    return Study(
        table["title"],
        cells,
        table.get("about", "").strip(),
        table.get("seeds", 3),
        table.get("over", "classes"),
        table.get("folds", 0),
        frozenset(unsearched),
        controls,
        **{k: table[k] for k in OPTIONS if k in table},
    )


def _published(dataset):
    """The cells that the papers print, with their settings."""
    cells = {UNTRAINED: named(dataset).with_(steps=0)}
    for loss, method in _pairs(TABLES["published"]["cells"]):
        name = dataset if method == "gap" else f"{dataset}-{method}"
        cells[loss, method] = named(name, loss=loss)
    return Study(f"{dataset}, published settings", cells, num_folds=4)


STUDIES: dict[str, Study] = {
    **{name: _study(name, table) for name, table in TABLES["study"].items()},
    **{dataset: _published(dataset) for dataset in PUBLISHED},
}
