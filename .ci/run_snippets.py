"""Runs the Python snippets of a page in their order, as a reader would."""

import re
import sys
from pathlib import Path

import keras
import numpy as np

import keras_gsp as gsp

FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

if __name__ == "__main__":
    snippets = FENCE.findall(Path(sys.argv[1]).read_text())
    if not snippets:
        sys.exit(f"{sys.argv[1]} must hold a Python snippet. Received: none.")
    names = {"keras": keras, "np": np, "gsp": gsp}
    for number, snippet in enumerate(snippets, start=1):
        exec(
            compile(snippet, f"{sys.argv[1]}, snippet {number}", "exec"), names
        )
    print(f"{sys.argv[1]}: {len(snippets)} snippets ran on {gsp.__file__}")
