"""Pure functions on tensors, for every Keras backend."""
