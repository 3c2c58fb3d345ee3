"""What a finished run says, as lines of text."""

from training.results.markdown import spread
from training.runs.run_directory import RunDirectory

MEASURES = ("map_at_r", "precision_at_r", "precision_at_1", "recall_at_1")
PARTS = {
    "single": "one model",
    "average": "models on their own",
    "concatenated": "models together",
}


def run_report(directory: RunDirectory, scores: dict) -> str:
    """What a finished run says: its scores, or a protocol's table."""
    if "protocol" in scores:
        return protocol_report(directory.path, scores)
    lines = [f"  {name:>16}  {value:.4f}" for name, value in scores.items()]
    title = (
        f"{directory.path}: {scores['num_queries']} images of unseen classes"
    )
    return "\n".join([title, *lines])


def protocol_report(path, scores: dict) -> str:
    """One line for each way of scoring.

    Args:
        path: The run's folder.
        scores: What `run_protocol` returned.
    """
    lines = [
        f"{path}: {scores['protocol']} protocol, {scores['num_models']} "
        f"models, weights chosen on {scores['selected_on']}"
    ]
    for part, name in PARTS.items():
        if part in scores:
            found = scores[part]
            values = ", ".join(
                f"{measure} {spread(found[measure])}"
                for measure in MEASURES
                if measure in found
            )
            lines.append(f"  {name}, {found['embedding_size']}-D: {values}")
    if "best" in scores:
        values = ", ".join(
            f"{measure} {scores['best'][measure]:.4f}"
            for measure in MEASURES
            if measure in scores["best"]
        )
        lines.append(f"  the best of {scores['num_models']}: {values}")
    return "\n".join(lines)
