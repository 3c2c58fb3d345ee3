"""What of a study is finished: its members' folders, and a line for each."""

import json
import os
from pathlib import Path

from training.research.protocols.members import Member
from training.research.protocols.query_scores import FILE as QUERY_FILE
from training.runs.kept_embeddings import FILE
from training.runs.run_directory import RunDirectory


class Ledger:
    """Keeps account of the members of one study cell.

    A member is finished when its folder holds its scores, the scores of
    every query and, where models are joined to collections, its test
    embeddings; `ledger.jsonl` says how long it took.

    Args:
        folder: The cell's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.file = self.folder / "ledger.jsonl"

    def directory(self, member: Member) -> RunDirectory:
        """The run directory of a member."""
        return RunDirectory(self.folder / "members" / member.name)

    def is_finished(self, member: Member) -> bool:
        """Whether nothing of the member is missing."""
        directory = self.directory(member)
        needed = [QUERY_FILE] + [FILE] * (member.protocol == "fair")
        return directory.is_finished and all(
            (directory.path / file).exists() for file in needed
        )

    def record(self, member: Member, seconds: float, scores: dict) -> None:
        """Adds a line for a member that has just been finished."""
        line = {
            "member": member.name,
            "seconds": round(seconds, 2),
            "map_at_r": scores["map_at_r"],
        }
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> list[dict]:
        """What was recorded, oldest first; a cut last line is passed over."""
        found = []
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        for line in lines:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def seconds(self) -> float:
        """Seconds of all recorded members."""
        return sum(line["seconds"] for line in self.lines())
