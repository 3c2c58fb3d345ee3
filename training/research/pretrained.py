"""Networks that studies start from, kept beside their records."""

from pathlib import Path

from training.research.studies import UNTRAINED, Study


def kept_weights(study: Study) -> tuple[Path, ...]:
    """Files of the networks of a study; trains those that are not there.

    Pretraining on another machine gives other weights, which move a row by
    points: a study reads the kept ones, in half precision.
    """
    for number, file in enumerate(study.kept):
        if not file.exists():
            _pretrain(file, number, study.cells[UNTRAINED].data_dir)
    return study.kept


def _pretrain(file, number, data_dir):
    # They import Keras.
    from keras_gsp.storage.whole import whole_file
    from training.datasets.collage import CIFAR10_SIDES, load_pictures
    from training.datasets.glyphs import single_characters
    from training.recipes.glyph_network import EPOCHS, train_classifier

    if file.name.startswith("picture-cnn"):
        # No class of the test, and none of its files.
        images = load_pictures(data_dir, 32, side="train")
        learned, background = CIFAR10_SIDES[0]
        images = images.of_classes(
            [images.class_names.index(name) for name in (*learned, background)]
        )
    else:
        images = single_characters()
    backbone = file.name.rpartition("-")[0].rpartition("-")[0]
    model = train_classifier(backbone, images, EPOCHS, seed=number)
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = file.with_name(f"whole-{file.name}")
    model.get_layer("glyph_cnn").save_weights(whole)
    with whole_file(file) as aside:
        _halve(whole, aside)
    whole.unlink()


def _halve(source, target):
    """Copies a file of weights in half precision, compressed."""
    import h5py

    with h5py.File(source) as read, h5py.File(target, "w") as write:

        def copy(name, item):
            if isinstance(item, h5py.Group):
                made = write.require_group(name)
            else:
                made = write.create_dataset(
                    name, data=item[()].astype("float16"), compression="gzip"
                )
            made.attrs.update(item.attrs)

        write.attrs.update(read.attrs)
        read.visititems(copy)
