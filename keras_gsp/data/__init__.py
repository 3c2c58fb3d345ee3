"""Batches for metric learning, as tf.data pipelines."""
