"""Files in an export that show a gallery which has no files of its own."""

PICTURES = "gallery_images.npy"
PICTURE_IDS = "gallery_ids.npy"
