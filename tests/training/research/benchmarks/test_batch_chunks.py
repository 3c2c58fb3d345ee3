"""The benchmark of chunks: its cases, its page, and one step of it."""

import json
import sys

import keras
import pytest

from training.research.benchmarks import batch_chunks, chunked_step
from training.research.benchmarks.ratio_table import Measurement
from training.research.results.pages import pages


def test_every_batch_is_measured_whole_and_in_chunks(tmp_path, monkeypatch):
    """The steps, processes of their own, are not started here."""
    asked = []

    def measured(backend, batch, chunks, settings):
        asked.append((backend, batch, chunks, settings.chunk))
        facts = {"memory grows by": f"{batch // chunks} MB"}
        return Measurement(f"{chunks} chunks", (0.1 * chunks,), facts)

    monkeypatch.setattr(batch_chunks, "measured", measured)
    options = ["--batches", "32", "1024", "--backends", "jax"]
    path = tmp_path / "batch_chunks.json"
    batch_chunks.main([*options, "--json", str(path)])
    assert asked == [
        ("jax", 32, 1, 32),
        ("jax", 1024, 1, 32),
        ("jax", 1024, 32, 32),
    ]
    page = pages(tmp_path)["batch_chunks.md"]
    assert "jax, 1,024 images" in page and "| 32 chunks |" in page
    assert "batch_chunks --batches 32 1024 --backends jax" in page


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="one backend is enough"
)
def test_a_step_says_its_time_and_memory(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["step", "4", "2", "32", "0.35", "1"])
    chunked_step.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(found["seconds"]) == 1 and found["growth_mb"] >= 0.0
