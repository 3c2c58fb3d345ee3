"""Commands that train, score, export and show; run from a checkout."""

import logging
import os
import sys

# Set here, before anything imports TensorFlow. Level 3 also hides "failed
# call to cuInit" on machines without a GPU; Python errors are still raised.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# It warns of many models in one process, which is the idea here.
logging.getLogger("tensorflow").setLevel(logging.ERROR)
# A progress bar written into a log file is hundreds of lines.
if not sys.stderr.isatty():
    os.environ.setdefault("TQDM_DISABLE", "1")
