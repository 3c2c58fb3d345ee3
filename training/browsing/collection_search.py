"""Search a saved `Retriever`, in step with its photographs."""

from pathlib import Path
from typing import Any

import numpy as np


class CollectionSearch:
    """Answers as `ExportSearch` does, from what `Retriever.save` wrote.

    Embeds what came or changed in `data_dir`, forgets what is gone, saves and
    says so. `encoder`, a Keras model, makes a collection in an empty `path`;
    later it must be the same.
    """

    def __init__(
        self, path: Path, data_dir: str | None, encoder: Any = None, k: int = 10
    ) -> None:
        from keras_gsp.retrieval import ExactIndex, Retriever
        from keras_gsp.retrieval.space import check_space
        from keras_gsp.storage.one_process import one_process
        from keras_gsp.storage.whole import check_version

        self.k = k
        check_version(path, overwrite=True)
        with one_process(path):
            if (path / "current.json").is_file():
                self.retriever = Retriever.load(path, folder=data_dir)
                if encoder is not None:
                    check_space(encoder, self.retriever.index)
            else:
                index = ExactIndex()
                self.retriever = Retriever(encoder, index, folder=data_dir)
            if data_dir is not None:
                self._follow(path)
        self.is_augmented = self.retriever.index.augmentation is not None

    def _follow(self, path):
        """Brings the collection in step and saves what was done."""
        retriever, before = self.retriever, len(self.retriever)
        try:
            changes = retriever.sync()
        except KeyboardInterrupt:
            if len(retriever):  # The next call goes on from here.
                retriever.save(path, overwrite=True)
            raise
        is_other = changes.added or changes.changed or len(retriever) != before
        if len(retriever) and is_other:
            retriever.save(path, overwrite=True)
        print(f"{path}: {changes}")
        for name, reason in changes.failed.items():
            print(f"{name}: {reason}")

    def search(self, image_bytes: list[bytes]) -> dict[str, np.ndarray]:
        """Returns what an export's signature `"search"` does."""
        index = self.retriever.index
        rows = np.zeros((len(image_bytes), index.embedding_size or 0))
        status = [b"ok"] * len(rows)
        for number, content in enumerate(image_bytes):
            try:
                rows[number] = self.retriever.embed(content)
            except ValueError as error:
                status[number] = str(error).encode()
        neighbors = index.search(rows, self.k)
        names = "ids", "labels", "distances", "counts", "is_match"
        answer = {name: getattr(neighbors, name) for name in names}
        answer = {k: v for k, v in answer.items() if v is not None}
        return answer | {"status": np.array(status)}

    def image(self, id_: str) -> bytes | None:
        """Returns the file of an item, None where it is missing."""
        file = self.retriever.path(id_)
        return None if file is None else file.read_bytes()
