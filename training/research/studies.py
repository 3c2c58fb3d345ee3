"""The studies of `studies.toml`: tables of recipes."""

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.recipes.choices import is_proxy_loss
from training.recipes.recipe import PUBLISHED, Recipe, named

# Pretrained networks of studies, beside their records.
WEIGHTS = Path(__file__).parents[2] / "docs" / "results" / "weights"
TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
for _table in (_tables := TABLES["study"]).values():
    _table |= _tables.get(_table.get("from"), {}) | _table
METHODS: dict[str, dict[str, Any]] = TABLES["method"]
# The baseline of every table: raw features, averaged and normalized.
UNTRAINED = ("-", "untrained")
NEAR = 0.003
"""Rates this close to the best validation score count as best too."""


OPTIONS = "title", "seeds", "over", "search_seeds", "near", "pretrained"


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
    pretrained: tuple[str, int] = "", 0
    """Name and number of the networks that it starts from, seed after seed in
    turn."""
    weights: tuple[Path, ...] = ()
    """Files of these networks."""

    @property
    def kept(self) -> tuple[Path, ...]:
        """Where these files are kept, beside the records."""
        name, count = self.pretrained
        return tuple(
            WEIGHTS / f"{name}-{number}.weights.h5" for number in range(count)
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
        return [cell for cell in self.cells if self.family(cell) == family]


def beside(method: str, study: str = "") -> tuple[str, ...]:
    """Methods that a method is compared with: what it adds one thing to."""
    settings = TABLES["study"].get(study, {}).get("methods", {})
    changes = METHODS.get(method, {}) | settings.get(method, {})
    default = [] if method == "untrained" else ["gap"]
    return (*changes.get("beside", default),)


def base_of(name: str) -> Recipe:
    """The recipe of a base; pretrained weights are an option of the command."""
    if name not in TABLES["base"]:
        return named(name).with_(backbone_weights=None)
    settings = dict(TABLES["base"][name])
    return _with(base_of(settings.pop("from")), settings)


def _with(recipe, settings):
    """The recipe with settings of the file, where "" is None."""
    settings = {k: None if v == "" else v for k, v in settings.items()}
    return recipe.with_(**settings)


def _pairs(cells):
    """Every (row, method) of lines `rows: methods`."""
    for line in cells:
        rows, _, methods = line.partition(":")
        yield from itertools.product(rows.split(), methods.split())


def _study(name, table):
    base = _with(base_of(table["base"]), table.get("base_settings", {}))
    rows = table.get("rows", {})
    cells, unsearched, controls = {UNTRAINED: base.with_(steps=0)}, set(), {}
    for row, method in _pairs(table["cells"]):
        changes = METHODS.get(method, {})
        changes = changes | table.get("methods", {}).get(method, {})
        settings = {"loss": row, "pooling": base.pooling}
        settings |= changes or {"pooling": method}
        settings |= rows.get(row, {})
        if "ccp" in settings:
            sampled = TABLES["sampled"] | table.get("sampled", {})
            if is_proxy_loss(settings["loss"]):
                # Its proxies are the loss's own.
                names = {*table.get("sampled", {}), "ccp_arguments"}
                names.discard("in_batch_weight")
                sampled = {key: sampled[key] for key in names}
            settings = sampled | settings
        settings.pop("beside", None)
        if control := settings.pop("control", ""):
            controls[row, method] = control
        if not settings.pop("search", table.get("search", True)):
            unsearched.add((row, method))
        recipe = _with(base, settings)
        choices = table.get("settings", {}).get(method)
        for number, choice in enumerate(choices or [{}]):
            key = row, f"{method}@{number}" if choices else method
            cells[key] = _with(recipe, choice)
    return Study(
        cells=cells,
        about=table.get("about", "").strip(),
        num_folds=table.get("folds", 0),
        unsearched=frozenset(unsearched),
        controls=controls,
        **{option: table[option] for option in OPTIONS if option in table},
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
