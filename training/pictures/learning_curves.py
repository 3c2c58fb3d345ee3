"""Validation score against training steps, one band per method."""

from pathlib import Path

import numpy as np

from training.pictures.palette import METHODS, picture


def draw_learning_curves(path: Path, histories: dict) -> None:
    """Draws mean and range over seeds of `val_map_at_r`.

    Args:
        path: PNG file to write.
        histories: Method -> one history per seed, as
            `RunDirectory.read_history` gives it.
    """
    with picture(path, figsize=(8, 5)) as axes:
        axis = axes[0, 0]
        for method, runs in histories.items():
            # Runs may have stopped early at different steps.
            length = min(len(run) for run in runs)
            steps = [line["step"] for line in runs[0][:length]]
            scores = np.array(
                [
                    [line["val_map_at_r"] for line in run[:length]]
                    for run in runs
                ]
            )
            color = METHODS[method]
            axis.plot(
                steps, scores.mean(axis=0), "o-", color=color, label=method
            )
            low, high = scores.min(axis=0), scores.max(axis=0)
            axis.fill_between(steps, low, high, color=color, alpha=0.2, lw=0)
        axis.set_xlabel("training step")
        axis.set_ylabel("MAP@R on validation letters")
        axis.set_ylim(bottom=0)
        seeds = max(len(runs) for runs in histories.values())
        axis.legend(title=f"mean and range of {seeds}" if seeds > 1 else None)
