"""The benchmark of scoring: its data, its rival and its tables."""

import json
import sys

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the rival is TensorFlow's", allow_module_level=True)

from training.research.benchmarks import evaluation, score_contender
from training.research.report import ratio_table


@pytest.fixture
def embeddings_file(tmp_path):
    path = tmp_path / "embeddings.npz"
    evaluation.write_embeddings(path, 1200, evaluation.Settings())
    return path


def test_the_rival_finds_the_nearest(embeddings_file):
    with np.load(embeddings_file) as arrays:
        embeddings = arrays["embeddings"][:60]
    found = score_contender.search(embeddings, 5)
    distances = np.linalg.norm(embeddings[:, None] - embeddings, axis=2)
    assert (found == np.argsort(distances, axis=1)[:, :5]).all()


@pytest.mark.parametrize("kind", ["plain", "scores", "gallery"])
def test_contenders_report_time_and_memory(
    kind, embeddings_file, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["x", kind, str(embeddings_file)])
    score_contender.main()
    report = json.loads(capsys.readouterr().out)
    assert report["seconds"] > 0
    assert ("map_at_r" in report) == (kind != "plain")


def test_a_table_holds_ratios_to_the_first():
    reports = [
        [{"seconds": 2.0, "growth_mb": 10}, {"seconds": 4.0, "growth_mb": 12}],
        [{"seconds": 1.5, "growth_mb": 20, "map_at_r": 0.5}],
    ]
    measured = [
        evaluation.measurement(name, runs)
        for name, runs in zip(("plain", "ours"), reports, strict=True)
    ]
    table = ratio_table(measured)
    headings, (plain, ours) = table.headings, table.rows
    assert headings[-2:] == ["memory grows by", "MAP@R"]
    assert plain[1:4] == ["3", "1.00", "0.67-1.33"]
    assert plain[-2:] == ["12 MB", ""]
    assert ours[1:3] == ["1.5", "0.50"]
    assert ours[-1] == "0.50000000"
