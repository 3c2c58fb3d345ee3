"""Commands that train, score, export and show; run from a checkout."""

import os
import sys

# Here, because both have to stand before the first import of what reads them,
# whichever command makes it. TensorFlow's start-up lines would drown what a
# command prints; a bar written into a log is hundreds of lines.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if not sys.stderr.isatty():
    os.environ.setdefault("TQDM_DISABLE", "1")
