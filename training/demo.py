"""GSP on a pretrained network that meets clutter: `make demo`.

A small network learns single characters. Then an encoder learns to find
letters among symbols, with average pooling (GAP), with GSP and with GSP + ZSR:
once with the network frozen, once fine-tuned. The letters and symbols that are
scored were never seen. A second look then embeds the window where the frozen
GSP pooled, with the network's own features (`gsp.models.TwoLooks`). Ends with a
table, an export, a search and a report; a demo that was stopped continues,
finished trainings are kept.
"""

import os
import re
import subprocess
import sys
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from training.recipes.named import named
from training.recipes.recipe import Recipe
from training.recipes.settings import positive
from training.runs.command_line import run_command
from training.runs.run_directory import RunDirectory, write_text
from training.runs.scoring import embed, load_encoder
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
# The run that is longer and not compared: it is there to be exported.
BEST = ("fine-tuned, ProxyNCA++", "GSP+ZSR", 0)
# The pretrained network's features, averaged: what training starts from.
UNTRAINED = ("pretrained", "no training", 0)
# The runs that look twice: a letter fills a window of half the canvas.
LOOKS, WINDOW = ("frozen", "GSP"), 0.5
SMOKE = {"steps": 20, "steps_per_evaluation": 20}
CONCLUSION = (
    "docs/results/clutter.md has three trainings of each, with intervals. From "
    "random\nweights, trained long enough, averaging and GSP are level: see "
    "docs/results/methods.md."
)
NUM_QUERIES, NUM_SHOWN = 3, 5
"""Images that the export is searched with, and neighbors printed of each."""
CHECKOUT = Path(__file__).parents[1]
Key = tuple[str, str, int]  # stage, method and seed of a run
MEASURES = ["map_at_r", "precision_at_1", "precision_at_r"]


@dataclass(frozen=True)
class DemoCommand:
    """Trains GAP, GSP and GSP + ZSR on a pretrained network among clutter."""

    runs: Path = Path("runs/demo")
    """Folder for everything that the demo makes."""
    seeds: Annotated[int, positive] = 3
    """Trainings of each method on the frozen network. They take seconds; the
    fine-tuned network is trained once."""
    smoke: bool = False
    """One training of 20 steps each: does it run at all?"""
    open: bool = True
    """Open the report in the browser, where there is a desktop."""

    @property
    def recipes(self) -> dict[Key, Recipe]:
        """(stage, method, seed) -> recipe."""
        own = SMOKE if self.smoke else {}
        seeds = 1 if self.smoke else self.seeds
        found = {UNTRAINED: _recipe("frozen", "GAP").with_(steps=0)}
        found |= {
            (stage, method, seed): _recipe(stage, method).with_(
                seed=seed, **own
            )
            for stage in STAGES
            for method in METHODS
            for seed in range(seeds if stage == "frozen" else 1)
        }
        found[BEST] = _best_recipe().with_(**own)
        return found


def _recipe(stage, method):
    """A cell of the comparison: contrastive loss, 800 steps of 16 x 4."""
    return named("glyphs").with_(
        backbone_weights="characters",
        loss_arguments={"negative_margin": 0.3841},
        steps=800,
        steps_per_evaluation=100,
        learning_rate=RATES[stage][method],
        **(CLUTTER if method != "GAP" else {}),
        **METHODS[method],
        **STAGES[stage],
    )


def _best_recipe():
    """What the demo exports: the same with a proxy loss."""
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
        kept = recipe.cache_features
        if kept not in splits:
            splits[kept] = load_splits(recipe)
        stage, method, seed = key
        name = re.sub(r"[^a-z0-9]+", "-", f"{stage}-{method}-{seed}".lower())
        directories[key] = RunDirectory(folder / name)
        label = f"{stage}, {method}, {seed}"
        _train(recipe, splits[kept], directories[key], label)
    images = splits[False].test
    table = results_table(directories)
    table += second_look(directories, images)
    write_text(folder / "results.md", table)
    print(
        f"\n{len(images)} images of {images.num_classes} unseen letters among "
        "unseen symbols; mean and standard deviation over seeds:\n\n"
        f"{table}\n{CONCLUSION}\n"
    )
    export_and_search(best_run(directories), images, folder)
    page = write_demo_report(directories, folder)
    if command.open and not command.smoke and _has_desktop():
        webbrowser.open(page.absolute().as_uri())
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} seconds in all. Everything is in {folder}/")


def best_run(directories: dict[Key, RunDirectory]) -> RunDirectory:
    """The run with the best validation score."""
    scores = {
        run: max((e["val_map_at_r"] for e in run.read_history()), default=0.0)
        for run in directories.values()
    }
    return max(scores, key=scores.__getitem__)


def export_and_search(
    directory: RunDirectory, images: Any, folder: Path
) -> None:
    """Exports a run to `saved_model` and searches it from a new process.

    The gallery holds the queries, so each finds itself first.
    """
    from PIL import Image

    from training.export import Export, export_run

    model = folder.absolute() / "saved_model"
    if not model.exists():
        export_run(Export(run=directory.path, output=model))
    queries = folder.absolute() / "queries"
    queries.mkdir(parents=True, exist_ok=True)
    files = []
    firsts = np.unique(images.labels, return_index=True)[1]
    for position in firsts[-NUM_QUERIES:]:
        files.append(str(queries / f"test-{position}.png"))
        Image.fromarray(images.images[position]).save(files[-1])
    print(f"{directory.path} exported to {folder / 'saved_model'}. A new")
    print("process loads it and finds (distance, class, image):", flush=True)
    command = [sys.executable, "-m", "training.search", str(model), *files]
    subprocess.run(
        [*command, "--top", str(NUM_SHOWN)], cwd=CHECKOUT, check=True
    )


def write_demo_report(
    directories: dict[Key, RunDirectory], folder: Path
) -> Path:
    """Writes the report of all trainings and returns its page."""
    from training.report import ReportCommand, write_report

    runs = tuple(directory.path for directory in directories.values())
    page = folder / "report.html"
    for note in write_report(ReportCommand(runs=runs, output=page)):
        print(f"note: {note}")
    print(f"{page}: the report, one file that any browser opens")
    return page


def _has_desktop():
    """Whether a browser's window could be seen."""
    shown = map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    is_here = sys.platform in ("darwin", "win32") or any(shown)
    return is_here and not {"CI", "SSH_CONNECTION"} & os.environ.keys()


def results_table(directories: dict[Key, RunDirectory]) -> str:
    """Markdown table: mean and standard deviation over seeds."""
    cells = dict.fromkeys((stage, method) for stage, method, _ in directories)
    headings = "network", "method", "MAP@R", "P@1", "P@R", "rate", "seeds"
    rows: list = [headings, ["---"] * len(headings)]
    for cell in cells:
        runs = _runs_of(directories, cell)
        scores = [[run.read_scores()[m] for run in runs] for m in MEASURES]
        recipe = runs[0].read_recipe()
        rate = f"{recipe.learning_rate:g}" if recipe.steps else ""
        rows.append([*cell, *map(_spread, scores), rate, len(runs)])
    return "".join(map(_line, rows))


def second_look(directories: dict[Key, RunDirectory], images: Any) -> str:
    """A row of the table: raw features of the window where GSP pooled."""
    import keras_gsp as gsp
    from training.recipes.backbone import build_backbone

    side = int(WINDOW * images.images.shape[1])
    found = []
    runs = _runs_of(directories, LOOKS)
    for run in runs:
        recipe = run.read_recipe().with_(cache_features=False)
        looks = gsp.models.TwoLooks(
            load_encoder(run),
            gsp.models.build_encoder(
                build_backbone(recipe, (side, side, 3)), embedding_size=None
            ),
            window=WINDOW,
            combine="second",
        )
        embeddings = embed(looks, recipe, images)
        found.append(gsp.metrics.retrieval_scores(embeddings, images.labels))
    scores = [[one[name] for one in found] for name in MEASURES]
    name = "GSP's window, not trained"
    return _line([LOOKS[0], name, *map(_spread, scores), "", len(runs)])


def _runs_of(directories, cell):
    return [run for key, run in directories.items() if key[:2] == cell]


def _line(cells):
    return f"| {' | '.join(map(str, cells))} |\n"


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
