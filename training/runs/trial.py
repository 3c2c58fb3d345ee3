"""A run that is compared with others: trained once, scored query by query."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.datasets.image_set import RetrievalSplits
from training.recipes.recipe import Recipe
from training.runs.run_directory import RunDirectory
from training.runs.scoring import (
    FILE,
    load_test_embeddings,
    save_arrays,
    side_scores,
)
from training.runs.train_run import train_run

QUERIES = "query_scores.npz"
MEASURES = ("map_at_r", "precision_at_r", "precision_at_1")


@dataclass(frozen=True)
class Trial:
    """One training run in its folder; a finished one is not repeated."""

    path: Path
    recipe: Recipe

    @property
    def is_finished(self) -> bool:
        """Whether nothing of the run is missing."""
        return (self.path / QUERIES).exists()

    def train(self, splits: RetrievalSplits) -> None:
        """Trains it and scores each test query; resumes a killed run."""
        directory, start = RunDirectory(self.path), time.monotonic()
        if not directory.is_finished:
            label = f"{self.path.parent.name} {self.path.name}"
            train_run(
                self.recipe,
                splits,
                directory,
                label=label,
                keep_embeddings=True,
            )
        with RunDirectory(self.path).locked():
            # Two processes may find it trained and not scored.
            if self.is_finished:
                return
            found = query_scores(load_test_embeddings(self.path), splits)
            found["seconds"] = np.array(time.monotonic() - start)
            save_arrays(self.path / QUERIES, found)
            (self.path / FILE).unlink()

    def validation_score(self) -> float:
        """The best validation score; -inf where training diverged."""
        lines = RunDirectory(self.path).read_history()
        scores = [line.get("val_map_at_r", -np.inf) for line in lines]
        return float(max(filter(np.isfinite, scores), default=-np.inf))

    def queries(self) -> dict[str, np.ndarray]:
        """`labels` and `MEASURES` of each test query, and `seconds`."""
        with np.load(self.path / QUERIES) as arrays:
            return dict(arrays)


def query_scores(
    embeddings: dict[str, np.ndarray], splits: RetrievalSplits
) -> dict[str, np.ndarray]:
    """Returns `labels` and `MEASURES` of every query, each (num_queries,)."""
    sides = splits.sides()
    found = side_scores(embeddings, sides)["per_query"]
    labels = sides.get("query", splits.test).labels
    return {"labels": labels} | {m: found[m] for m in MEASURES}
