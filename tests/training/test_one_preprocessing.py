"""Every command cuts images as the encoder expects, or refuses by name."""

import json
import shutil

import pytest

from training import embed, evaluate, export, report


@pytest.fixture
def contradicting(tiny, tmp_path):
    """A run whose recipe cuts another part than its encoder expects."""
    run = tmp_path / "run"
    shutil.copytree(tiny.run(), run)
    settings = json.loads((run / "settings.json").read_text())
    settings["recipe"]["resize"] = 48
    (run / "settings.json").write_text(json.dumps(settings))
    return run


def test_a_contradiction_is_refused_by_name(
    contradicting, tiny, tmp_path, capsys
):
    output = ["--output", str(tmp_path / "out")]
    for command, options in (
        (evaluate, []),
        (export, output),
        (export, [*output, "--index", "none"]),
        (export, [*output, "--false-accept-rate", "0.1"]),
        (embed, [*output, "--images", str(tiny.images)]),
    ):
        with pytest.raises(SystemExit) as stopped:
            command.main([str(contradicting), *options])
        words = str(stopped.value.code)
        assert "`encoder` and `recipe` must cut images alike" in words
        assert "resize=27" in words and "resize=48" in words
    assert not (tmp_path / "out").exists()
    # A report does without embeddings.
    report.main([str(contradicting)])
    printed = capsys.readouterr().out
    assert "No image could be embedded: `encoder` and `recipe` must" in printed
