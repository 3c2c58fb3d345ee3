"""Batches for metric learning, as tf.data pipelines."""

from keras_gsp.data.class_balanced import class_balanced
from keras_gsp.data.decoding import decode_image, image_size
from keras_gsp.data.images import augmented_batches, evaluation_batches
from keras_gsp.data.readable_images import ReadableImages, readable_images

__all__ = [
    "ReadableImages",
    "augmented_batches",
    "class_balanced",
    "decode_image",
    "evaluation_batches",
    "image_size",
    "readable_images",
]
