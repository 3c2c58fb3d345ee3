"""Image sets, and batches of them for metric learning (tf.data)."""

from keras_gsp.data.class_balanced_batches import class_balanced_batches
from keras_gsp.data.decoding import decode_image, image_size
from keras_gsp.data.image_folder import csv_list, image_folder
from keras_gsp.data.image_set import ImageSet
from keras_gsp.data.images import augmented_batches, evaluation_batches
from keras_gsp.data.preprocessing import Preprocessing, preprocessing_of
from keras_gsp.data.readable_images import readable_images

__all__ = [
    "ImageSet",
    "Preprocessing",
    "augmented_batches",
    "class_balanced_batches",
    "csv_list",
    "decode_image",
    "evaluation_batches",
    "image_folder",
    "image_size",
    "preprocessing_of",
    "readable_images",
]
