"""What a report holds is what JSON can hold."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.research.experiments.report import (
    ExperimentSettings,
    run_experiment,
)
from training.research.results.records import plain


@dataclass(frozen=True, kw_only=True)
class Settings(ExperimentSettings):
    data_dir: Path | None = None


def test_arrays_numbers_and_paths_become_what_json_holds():
    content = {1: [np.arange(2), np.float32(0.5)], "path": (Path("a"), None)}
    assert plain(content) == {"1": [[0, 1], 0.5], "path": ["a", None]}


def test_a_report_with_a_path_among_its_settings_is_written(tmp_path):
    settings = Settings(data_dir=tmp_path / "images", out=tmp_path)
    run_experiment(
        "study",
        settings,
        measure=lambda settings: {"count": np.int64(3)},
        draw=lambda path, results: path.write_bytes(b""),
        table=lambda results: f"count {results['count']}",
    )
    report = json.loads((tmp_path / "study.json").read_text())
    assert report["settings"]["data_dir"] == str(tmp_path / "images")
    assert report["results"] == {"count": 3}
