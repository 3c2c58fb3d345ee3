"""Networks that studies start from, kept beside their records."""

from pathlib import Path

from training.research.studies import Study


def kept_weights(study: Study) -> tuple[Path, ...]:
    """Files of the networks of a study; trains those that are not there.

    Pretraining on another machine gives other weights, which move a row by
    points: a study reads the kept ones, in half precision.
    """
    for number, file in enumerate(study.kept):
        if not file.exists():
            _pretrain(file, number)
    return study.kept


def _pretrain(file, number):
    # They import Keras.
    from training.datasets.glyphs import single_characters
    from training.recipes.glyph_network import EPOCHS, train_classifier

    backbone = file.name.partition("-characters-")[0]
    model = train_classifier(backbone, single_characters(), EPOCHS, seed=number)
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = file.with_name(f"whole-{file.name}")
    model.get_layer("glyph_cnn").save_weights(whole)
    _halve(whole, file)
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
