"""Networks that studies start from, kept beside their records."""

from pathlib import Path

from training.recipes.glyph_network import (
    CHARACTERS,
    EPOCHS,
    train_classifier,
)
from training.research.studies import Study

FOLDER = Path(__file__).parents[2] / "docs" / "results" / "weights"


def kept_weights(study: Study) -> tuple[Path, ...]:
    """Files of the networks of a study; trains those that are not kept.

    Pretraining on another machine gives other weights, which move a row by
    points: a study reads the kept ones, in half precision.
    """
    backbones = {
        one.backbone
        for one in study.cells.values()
        if one.backbone_weights == CHARACTERS
    }
    if not study.pretrainings:
        return ()
    (backbone,) = backbones
    return tuple(
        _kept(backbone, number) for number in range(study.pretrainings)
    )


def _kept(backbone, number):
    file = FOLDER / f"{backbone}-characters-{number}.weights.h5"
    if not file.exists():
        from training.datasets.glyphs import single_characters

        images = single_characters()
        model = train_classifier(backbone, images, EPOCHS, seed=number)
        file.parent.mkdir(parents=True, exist_ok=True)
        whole = file.with_name(f"whole-{file.name}")
        model.get_layer("glyph_cnn").save_weights(whole)
        _halve(whole, file)
        whole.unlink()
    return file


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
