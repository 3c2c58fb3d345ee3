"""The folder of one training run: its files, and who may write them."""

import contextlib
import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from training.recipes.recipe import Recipe

PACKAGES = (
    *("keras-gsp", "keras", "tensorflow", "tensorflow-cpu"),
    *("jax", "torch", "numpy", "scann"),
)


class RunDirectory:
    """Files of a run, `runs/<name>`; finished ones are never overwritten."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        # Recipe, seed, versions and commit.
        self.settings = self.path / "settings.json"
        # The names of the classes that train, validate and test.
        self.classes = self.path / "classes.json"
        # Losses and validation scores, a line for each evaluation.
        self.history = self.path / "history.jsonl"
        # The last file of a run: with it a run is finished.
        self.scores = self.path / "scores.json"
        self.encoder = self.path / "encoder.keras"
        self.checkpoint = self.path / "checkpoint"
        self.tensorboard = self.path / "tensorboard"

    @property
    def is_finished(self) -> bool:
        """Whether the run has its scores."""
        return self.scores.exists()

    def check(self, settings: dict) -> None:
        """Raises if a run with these settings may not write here.

        `FileExistsError` for a finished run or files of something else,
        `ValueError` for an unfinished run of another recipe.
        """
        if self.is_finished:
            raise FileExistsError(
                "A run directory must not hold a finished run. Received: "
                f"{self.path}, which has {self.scores.name}. Choose another "
                "--name, or move the old run away."
            )
        # Looked at before the settings, which another process may write now.
        holds_others = self.path.exists() and self._holds_other_files()
        if self.settings.exists():
            self._check_same_recipe(settings)
        elif holds_others:
            raise FileExistsError(
                "A run directory must be new, empty or a run's own. "
                f"Received: {self.path}, which has no {self.settings.name}."
            )

    def begin(self, settings: dict) -> None:
        """Makes the folder for a run, or resumes a killed one; see `check`."""
        self.check(settings)
        if not self.settings.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.settings, settings)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Locks the folder while a process trains into it.

        Raises `TakenError` if another process does.
        """
        from keras_gsp.storage.one_process import one_process

        return one_process(self.path / "training")

    def read_recipe(self) -> Recipe:
        """Reads the recipe of the run."""
        if not self.settings.exists():
            raise FileNotFoundError(
                "A run directory must hold settings.json. "
                f"Received: {self.path}. Train one with "
                "`python -m training.train glyphs`."
            )
        return Recipe.from_settings(self.read_settings()["recipe"])

    def read_settings(self) -> dict:
        """Reads `settings.json`; `ValueError` if it is damaged."""
        try:
            settings = json.loads(self.settings.read_text())
            if isinstance(settings.get("recipe"), dict):
                return settings
            reason = "no recipe"
        except (ValueError, AttributeError) as error:
            reason = str(error)
        raise ValueError(
            f"{self.settings} must hold a run's settings. Received: {reason}."
        )

    def read_classes(self) -> dict[str, list[str]] | None:
        """Reads the classes of each side; None before a run has begun."""
        if not self.classes.exists():
            return None
        return json.loads(self.classes.read_text())

    def keep_classes(self, classes: dict[str, list[str]]) -> None:
        """Writes the classes of each side, or checks that they are the run's.

        `ValueError` where a run would go on with other classes.
        """
        before = self.read_classes()
        if before is None:
            write_json(self.classes, classes)
        elif classes != before:
            moved = [s for s in classes if classes[s] != before.get(s)]
            raise ValueError(
                f"The run in {self.path} must go on with its own classes. "
                f"Received: other ones to {', '.join(moved)}. Choose another "
                "--name."
            )

    def read_scores(self) -> dict:
        """Reads the test scores of a finished run."""
        return json.loads(self.scores.read_text())

    def read_history(self) -> list[dict]:
        """Reads the evaluations so far, oldest first."""
        if not self.history.exists():
            return []
        lines = self.history.read_text().splitlines()
        return [json.loads(line) for line in lines]

    def _holds_other_files(self):
        """Whether there are files that a killed run does not leave."""
        from keras_gsp.storage.whole import is_left_behind

        return not all(map(is_left_behind, self.path.iterdir()))

    def _check_same_recipe(self, settings):
        saved = self.read_settings()["recipe"]
        # Sequences are lists in JSON.
        given = json.loads(json.dumps(settings["recipe"]))
        differing = [
            f"{name}: {saved.get(name)!r} there, {given.get(name)!r} now"
            for name in sorted(saved.keys() | given.keys())
            if saved.get(name) != given.get(name)
        ]
        if differing:
            raise ValueError(
                f"The unfinished run in {self.path} must be resumed with "
                f"its own recipe. Received: {'; '.join(differing)}. Choose "
                "another --name."
            )


def write_json(path: Path, content: dict) -> None:
    """Writes a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    # The package imports Keras: not for an error or --help.
    from keras_gsp.storage.whole import whole_file

    with whole_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def environment() -> dict:
    """Returns versions of Python and packages, and the commit."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "blas": _blas(),
        "packages": dict(_versions()),
        "commit": _commit(),
    }


def _processor():
    """Returns the processor's name and the number of its cores."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [x.partition(": ")[2] for x in lines if x.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name}, {os.cpu_count()} cores"


def _blas():
    """Returns NumPy's library of linear algebra."""
    import numpy as np

    facts = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{facts['name']} {facts.get('version', '')}".strip()


def _versions():
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)


def _commit():
    """Returns the commit, marked when files differ; None without git."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
