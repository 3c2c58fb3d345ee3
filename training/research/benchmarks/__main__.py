"""Runs every benchmark, each in a process of its own: `make bench`."""

import subprocess
import sys

BENCHMARKS = "digits pooling losses reading search step_share".split()


def main() -> None:
    """Runs all of them, and fails at the end when one of them has."""
    failed = []
    for name in BENCHMARKS:
        print(f"\n## {name}\n", flush=True)
        command = [sys.executable, "-m", f"training.research.benchmarks.{name}"]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
