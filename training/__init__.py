"""Commands that train, score, export and show; run from a checkout."""

import os

# TensorFlow's start-up lines would drown what a command prints. Here, because
# it has to stand before TensorFlow's first import, whoever makes it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
