"""Whether a run goes on with the settings that it began with."""

import json
from typing import Any


def settings_as_json(settings: dict[str, Any] | None) -> Any:
    """Returns what settings look like when they are read back.

    Raises:
        TypeError: settings that JSON cannot hold.
    """
    try:
        return json.loads(json.dumps(settings))
    except TypeError as error:
        raise TypeError(
            "`settings` must be a dictionary that JSON can hold. "
            f"Received: settings={settings!r} ({error})."
        ) from error


def check_settings(saved: Any, given: Any) -> None:
    """Raises `ValueError` for settings unlike the checkpoint's, by name.

    Args:
        saved: dictionary of the checkpoint, `None` compares nothing.
        given: dictionary of this run, `None` compares nothing.
    """
    if saved is None or given is None:
        return
    differing = [
        f"{key}: {saved.get(key)!r} in the checkpoint, {given.get(key)!r} now"
        for key in sorted(saved.keys() | given.keys())
        if saved.get(key) != given.get(key)
    ]
    if differing:
        raise ValueError(
            "`settings` must be those of the checkpoint. Received: "
            + "; ".join(differing)
            + "."
        )


def check_equal(what: str, saved: Any, given: Any) -> None:
    """Raises `ValueError` unless a fact is as in the checkpoint."""
    if saved != given:
        raise ValueError(
            f"{what} must be as in the checkpoint, {saved!r}. "
            f"Received: {given!r}."
        )
