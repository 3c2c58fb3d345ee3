"""Image sets, and batches of them for metric learning."""

from keras_gsp.data.batches import image_batches
from keras_gsp.data.class_balanced_sampler import ClassBalancedSampler
from keras_gsp.data.decoding import decode_image, image_size
from keras_gsp.data.image_set import ImageSet, image_folder
from keras_gsp.data.preprocessing import Preprocessing

__all__ = [
    "ClassBalancedSampler",
    "ImageSet",
    "Preprocessing",
    "decode_image",
    "image_batches",
    "image_folder",
    "image_size",
]
