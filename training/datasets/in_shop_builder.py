"""TFDS builder of In-shop Clothes Retrieval, which TFDS does not have.

Importing this module imports TFDS; nothing else in `training` does.
"""

import tensorflow_datasets as tfds

from training.datasets.in_shop import image_root, partition


class InShop(tfds.core.GeneratorBasedBuilder):
    """In-shop Clothes Retrieval with the splits train, query and gallery."""

    name = "in_shop"
    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "The published partition."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = (
        "Put list_eval_partition.txt and img/ (or img.zip) of the In-shop "
        "Clothes Retrieval Benchmark into the manual folder."
    )

    def _info(self):
        # tfds' own helper needs a package layout that a plain module lacks.
        return tfds.core.DatasetInfo(
            builder=self,
            description="In-shop Clothes Retrieval (DeepFashion).",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(),
                    "item": tfds.features.Text(),
                    # Reading order is shuffled by key: the path identifies.
                    "path": tfds.features.Text(),
                }
            ),
            homepage="https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html",
        )

    def _split_generators(self, dl_manager):
        rows = partition(dl_manager.manual_dir)
        root = image_root(dl_manager.manual_dir)
        return {
            status: self._generate_examples(
                root, [row for row in rows if row[2] == status]
            )
            for status in ("train", "query", "gallery")
        }

    def _generate_examples(self, root, rows):
        for path, item, _ in rows:
            yield path, {"image": root / path, "item": item, "path": path}
