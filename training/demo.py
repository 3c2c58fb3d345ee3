"""GSP on a pretrained network that meets clutter: `make demo`.

A small network learned single characters. Frozen, it has to find letters among
symbols: with average pooling (GAP), with GSP, and with a second look at the
window where GSP pooled (`gsp.models.TwoLooks`), first with the network's own
features, then with a head trained on the windows. The letters and symbols that
are scored were never seen. Ends with a table, an export, a search and a report.

`make demo DEMO=--full` adds GSP + ZSR, the same fine-tuned, a longer run with a
proxy loss, and three seeds. A demo that was stopped continues.
"""

import dataclasses
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from training.recipes.recipe import Recipe, named
from training.runs.command_line import run_command
from training.runs.run_directory import RunDirectory, write_text
from training.runs.scoring import load_encoder
from training.runs.train_run import train_run

METHODS: dict[str, dict[str, Any]] = {
    "GAP": {"pooling": "gap"},
    "GSP": {"pooling": "gsp"},
    "GSP+ZSR": {"pooling": "gsp", "regularizer": "zsr"},
}
# Few features, chosen sharply: a letter is a quarter of the canvas.
CLUTTER = {"transport_ratio": 0.1, "inverse_temperature": 40.0}
# What each stage trains, and the learning rate of each method: the best of five
# (factor 3) on validation letters with one seed, as in docs/results/clutter.md.
STAGES: dict[str, dict[str, Any]] = {
    "frozen": {"frozen": "all", "cache_features": True, "fall_share": 1.0},
    "fine-tuned": {"fall_share": 0.25, "ramp_steps": 50},
}
RATES = {
    "frozen": {"GAP": 6e-3, "GSP": 6e-3, "GSP+ZSR": 6e-3},
    "fine-tuned": {"GAP": 9e-3, "GSP": 3e-3, "GSP+ZSR": 3e-3},
}
# The longer run that is not compared.
LONGER = ("fine-tuned, ProxyNCA++", "GSP+ZSR", 0)
# The runs that look twice: a letter fills a window of half the canvas.
LOOKS, WINDOW, SIDE = ("frozen", "GSP"), 0.5, 24
SMOKE = {"steps": 20, "steps_per_evaluation": 20}
NUM_QUERIES, NUM_SHOWN = 3, 5
"""Images that the export is searched with, and neighbors printed of each."""
Key = tuple[str, str, int]  # stage, method and seed of a run
MEASURES = ["map_at_r", "precision_at_1"]


@dataclass(frozen=True)
class DemoCommand:
    """Trains GAP, GSP and a second look among clutter, and shows them."""

    runs: Path = Path("runs/demo")
    """Folder for everything that the demo makes."""
    full: bool = False
    """GSP + ZSR, fine-tuned networks and three seeds too."""
    smoke: bool = False
    """One training of 20 steps each: does it run at all?"""

    @property
    def recipes(self) -> dict[Key, Recipe]:
        """(stage, method, seed) -> recipe."""
        short = SMOKE if self.smoke else {}
        seeds = 3 if self.full and not self.smoke else 1
        recipes = {
            (stage, method, seed): _recipe(stage, method, seed=seed, **short)
            for stage in (STAGES if self.full else ["frozen"])
            for method in (METHODS if self.full else ["GAP", "GSP"])
            for seed in range(seeds if stage == "frozen" else 1)
        }
        if self.full:
            recipes[LONGER] = _longer_recipe().with_(**short)
        return recipes


def _recipe(stage, method, **settings):
    """A cell of the comparison: contrastive loss, 800 steps of 16 x 4."""
    own = {
        "backbone_weights": "characters",
        "loss_arguments": {"negative_margin": 0.3841},
        "steps": 800,
        "steps_per_evaluation": 100,
        "learning_rate": RATES[stage][method],
    }
    clutter = CLUTTER if method != "GAP" else {}
    own |= clutter | METHODS[method] | STAGES[stage] | settings
    return named("glyphs").with_(**own)


def _longer_recipe():
    return named(
        "glyphs", loss="proxy-nca", pooling="gsp", regularizer="zsr"
    ).with_(
        backbone_weights="characters",
        steps=1000,
        steps_per_evaluation=100,
        inverse_temperature=20.0,
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line."""
    run_command("demo", DemoCommand.__doc__, DemoCommand, run_demo, arguments)


def run_demo(command: DemoCommand) -> None:
    """Trains, compares, exports, searches and reports."""
    start = time.monotonic()
    folder = command.runs / "smoke" if command.smoke else command.runs
    # TensorFlow takes seconds to import: not for an error or for --help.
    from training.recipes.data import check_sources, load_splits

    directories: dict[Key, RunDirectory] = {}
    splits: dict[bool, Any] = {}
    for key, recipe in command.recipes.items():
        check_sources(recipe)
        # Images, or the frozen network's features of them.
        is_cached = recipe.cache_features
        if is_cached not in splits:
            splits[is_cached] = load_splits(recipe)
        name = re.sub(r"[^a-z0-9]+", "-", "-".join(map(str, key)).lower())
        directories[key] = RunDirectory(folder / name)
        label = ", ".join(map(str, key))
        _train(recipe, splits[is_cached], directories[key], label)
    if False not in splits:
        splits[False] = load_splits(recipe.with_(cache_features=False))
    images = splits[False].test
    looks = second_looks(directories, splits[False])
    table = results_table(directories, looks)
    write_text(folder / "results.md", table)
    print(
        f"\n{len(images)} images of {images.num_classes} unseen letters among "
        f"unseen symbols:\n\n{table}"
    )
    export_and_search(looks[-1], images, folder)
    write_demo_report(directories, folder)
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} seconds in all. Everything is in {folder}/")
    print("Next: make demo DEMO=--full")


@dataclass(frozen=True, eq=False)
class Look:
    """A second look of some runs: name, last encoder, rows and scores."""

    name: str
    encoder: Any
    rows: np.ndarray
    scores: list[dict[str, Any]]


def second_looks(directories: dict[Key, RunDirectory], splits: Any) -> list:
    """Embeds the window where GSP pooled: not trained, and with a head."""
    import keras_gsp as gsp
    from training.recipes.learner import build_backbone

    looks: dict[str, Look] = {}
    for run in _runs_of(directories, LOOKS):
        first, recipe = load_encoder(run), run.read_recipe()
        whole = recipe.with_(cache_features=False)
        raw = gsp.models.build_encoder(
            build_backbone(whole, (SIDE, SIDE, 3)), embedding_size=None
        )
        options: dict[str, Any] = {"window": WINDOW, "combine": "second"}
        finder = gsp.models.TwoLooks(first, raw, **options)
        head = window_head(run, finder, recipe, splits)
        for name, encoder in (
            ("GSP's window, not trained", finder),
            (
                "GSP's window, a head",
                gsp.models.TwoLooks(first, head, **options),
            ),
        ):
            rows = encoder.predict(splits.test.images, verbose=0)
            found = gsp.metrics.retrieval_scores(rows, splits.test.labels)
            before = looks[name].scores if name in looks else []
            looks[name] = Look(name, encoder, rows, [*before, found])
    return [*looks.values()]


def window_head(
    run: RunDirectory, finder: Any, recipe: Recipe, splits: Any
) -> Any:
    """Trains a head on the windows, which the network takes as characters."""
    from training.recipes.features import with_features

    directory = RunDirectory(run.path / "window")
    recipe = _recipe(
        *("frozen", "GAP"),
        seed=recipe.seed,
        steps=recipe.steps,
        steps_per_evaluation=recipe.steps_per_evaluation,
        data_arguments={"canvas_size": SIDE},
    )
    if not directory.is_finished:
        windows = splits.mapped(partial(_windows, finder))
        train_run(recipe, with_features(recipe, windows), directory)
    return load_encoder(directory)


def _windows(finder, images):
    """The windows of all images, as an image set."""
    starts = range(0, len(images), 500)
    parts = [finder.crops(images.images[i : i + 500]) for i in starts]
    pixels = np.rint(np.concatenate(parts)).clip(0, 255).astype("uint8")
    return dataclasses.replace(images, images=pixels)


def export_and_search(look: Look, images: Any, folder: Path) -> None:
    """Exports the best encoder and searches it, as `training.search` does.

    The gallery holds the queries, so each finds itself first.
    """
    from PIL import Image

    import keras_gsp as gsp
    from training import search
    from training.export import write_model

    model = folder / "saved_model"
    if not model.exists():
        ids = np.array([f"test/{i}" for i in range(len(images))])
        index = gsp.retrieval.ExactIndex(look.rows, images.names, ids)
        write_model(model, look.encoder, images, index)
    queries = folder / "queries"
    queries.mkdir(parents=True, exist_ok=True)
    files = []
    firsts = np.unique(images.labels, return_index=True)[1]
    for position in firsts[-NUM_QUERIES:]:
        files.append(str(queries / f"test-{position}.png"))
        Image.fromarray(images.images[position]).save(files[-1])
    print(f"{look.name} exported to {model}. training.search loads it")
    print("and finds (distance, class, image):", flush=True)
    picture = str(folder / "neighbors.png")
    options = ["--top", str(NUM_SHOWN), "--picture", picture]
    search.main([str(model), *files, *options])


def write_demo_report(
    directories: dict[Key, RunDirectory], folder: Path
) -> None:
    """Writes the report of all trainings."""
    from training.report import ReportCommand, write_report

    runs = tuple(directory.path for directory in directories.values())
    page = folder / "report.html"
    for note in write_report(ReportCommand(runs=runs, output=page)):
        print(f"note: {note}")
    print(f"{page}: the report, one file that any browser opens")


def results_table(
    directories: dict[Key, RunDirectory], looks: list[Look]
) -> str:
    """Markdown table, doing nothing first, the best row last.

    Cells are the mean and deviation over seeds.
    """
    cells = dict.fromkeys((stage, method) for stage, method, _ in directories)
    rows: list[Any] = [
        [*cell, [run.read_scores() for run in _runs_of(directories, cell)]]
        for cell in cells
    ]
    rows += [[LOOKS[0], look.name, look.scores] for look in looks]
    rows.sort(key=lambda row: np.mean([one["map_at_r"] for one in row[2]]))
    lines: list[list[str]] = [
        ["network", "method", "MAP@R", "P@1", "seeds"],
        ["---", "---", "---:", "---:", "---:"],
    ]
    raw = next(iter(directories.values())).read_scores()["raw"]
    nothing = {"raw features": raw[raw["best"]], "whitened": raw["whitened"]}
    rows = [
        *([LOOKS[0], f"{k}, not trained", [v]] for k, v in nothing.items()),
        *rows,
    ]
    for stage, method, scores in rows:
        spreads = [_spread([one[m] for one in scores]) for m in MEASURES]
        lines.append([stage, method, *spreads, str(len(scores))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _runs_of(directories, cell):
    return [run for key, run in directories.items() if key[:2] == cell]


def _spread(values):
    """Mean, and sample standard deviation of more than one value."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def _train(recipe, splits, directory, label):
    if not directory.is_finished:
        train_run(recipe, splits, directory, label=label)
        return
    if directory.read_recipe() != recipe:
        raise FileExistsError(
            "The demo's folder must hold runs of the demo's own recipes. "
            f"Received: {directory.path}, a finished run of another one. "
            "Choose another --runs."
        )
    print(f"{label}: finished before, kept")


if __name__ == "__main__":
    main()
