"""Training, evaluation and the experiments; run from a checkout."""
