"""What all commands share: options, warnings as notes, errors in a sentence."""

import contextlib
import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tyro

from training.recipes.settings import check_fields

# Module -> extra of the package that installs it.
EXTRAS = {
    "tensorflow": "tf-cpu",
    "gradio": "browse",
    "pyarrow": "parquet",
    "keras_hub": "hub",
    "tensorflow_datasets": "datasets",
    **dict.fromkeys(("ray", "faiss", "jax"), ""),
}


# Commands that go on where they were stopped.
RESUMED = "train", "advise", "embed", "search", "demo", "research.study"


def run_command(
    name: str,
    about: str | None,
    options: type,
    action: Callable[[Any], Any],
    arguments: list[str] | None,
    default: Callable[[], Any] | None = None,
) -> Any:
    """Parses the options of a command, runs it and returns its result.

    `options` is a dataclass, `default` a function that returns its instance.
    An error about options, files or settings ends the process with one
    sentence, and so does Ctrl+C.
    """
    try:
        command: Any = tyro.cli(
            options,
            prog=f"python -m training.{name}",
            description=about,
            args=arguments,
            **({} if default is None else {"default": default()}),
        )
        check_fields(command)
        with printed_notes():
            return action(command)
    except KeyboardInterrupt:
        how = "give the same command again to go on"
        is_resumed = name.partition(" ")[0] in RESUMED
        print(f"\nstopped: {how if is_resumed else 'nothing is left open'}")
        sys.exit(130)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(module, "training") or module
        sys.exit(f'error: {error}. Run pip install "keras-gsp[{extra}]".')
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")


def check_new(command: Any, *names: str) -> None:
    """Raises `FileExistsError` for a file to write that is there already."""
    for name in names:
        path = getattr(command, name)
        if path is not None and path.exists():
            raise FileExistsError(f"`{name}` must be new. Received: {path}.")


def is_list(data_dir: str) -> bool:
    """Whether images are those of a CSV list, not of a folder or archive."""
    return data_dir.lower().endswith(".csv")


def command_of(name: str, settings: dict[str, Any]) -> str:
    """Returns the command that trains a recipe with other settings."""
    words = ["python", "-m", "training.train", name]
    for setting, value in settings.items():
        words.append("--" + setting.replace("_", "-"))
        if isinstance(value, dict):
            words += [f"{key}={json.dumps(x)}" for key, x in value.items()]
        else:
            words.append(str(value))
    return shlex.join(words)


def counted(count: int, noun: str) -> str:
    """A number of things: "1 class", "2 classes"."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


@contextlib.contextmanager
def printed_notes() -> Iterator[None]:
    """Prints each warning as one line, once, and none of backends."""
    notes: set[str] = set()

    def print_note(message, *_, **__):
        if str(message) not in notes:
            print(f"note: {message}")
            notes.add(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", module="tensorflow|jax")
        warnings.showwarning = print_note
        yield
