"""Image sets: labels, subsets, and splits by class."""

import warnings

import numpy as np

from keras_gsp.data import ImageSet

LABELS = [0, 0, 1, 2, 2, 1]


def images(names="abc", labels=LABELS):
    paths = tuple(f"{label}/{i}.jpg" for i, label in enumerate(labels))
    return ImageSet(labels=labels, class_names=names, paths=paths)


def pixels(count=6):
    return np.arange(count, dtype="uint8")[:, None, None, None] * np.ones(
        (1, 2, 2, 3), "uint8"
    )


def test_length_classes_and_sizes():
    data = images()
    assert len(data) == 6
    assert data.num_classes == 3
    assert data.class_sizes.tolist() == [2, 2, 2]
    assert data.labels.dtype == np.int64
    assert data.names.tolist() == list("aabccb")


def test_subset_counts_its_labels_from_zero_again():
    part = images().subset([3, 5, 4])
    assert part.class_names == ("b", "c")
    assert part.labels.tolist() == [1, 0, 1]
    assert part.paths == ("2/3.jpg", "1/5.jpg", "2/4.jpg")
    data = ImageSet(labels=LABELS, class_names="abc", images=pixels())
    assert data.subset([5, 0]).images[:, 0, 0, 0].tolist() == [5, 0]
    part = images().of_classes([0, 2])
    assert part.class_names == ("a", "c")
    assert part.labels.tolist() == [0, 0, 1, 1]
    few = images().of_each_class(1)
    assert few.paths == ("0/0.jpg", "1/2.jpg", "2/3.jpg")


def test_a_split_is_disjoint_by_class_and_a_function_of_its_seed():
    whole = images("abcdefgh", [*range(8), *range(8)])
    drawn = {seed: whole.split_classes(3, seed=seed) for seed in range(4)}
    for train, test in drawn.values():
        assert (train.num_classes, test.num_classes) == (3, 5)
        assert sorted(train.class_names + test.class_names) == list("abcdefgh")
        assert len(train) + len(test) == 16
    assert len({train.class_names for train, _ in drawn.values()}) > 1
    again = whole.split_classes(3, seed=2)[0]
    assert again.class_names == drawn[2][0].class_names


def halves(names, *options, **seed):
    sides = images(names, range(len(names))).split_classes(*options, **seed)
    return [set(side.class_names) for side in sides]


def test_classes_keep_their_side_when_others_come_or_go():
    names = [f"class{i:03d}" for i in range(60)]
    for seed in range(5):
        train, _ = halves(names, seed=seed)
        for others in ([*names, "class060"], ["added", *names], names[7:]):
            assert not train & halves(others, seed=seed)[1]
        # An exact number moves at most one class.
        train, _ = halves(names, 20, seed=seed)
        assert len(train & halves(["added", *names], 20, seed=seed)[1]) <= 1


def test_sides_have_about_the_share_asked_for_of_few_classes_too():
    for count in (2, 3, 8, 100):
        names = [f"class{i}" for i in range(count)]
        for seed in range(9):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                train, test = halves(names, seed=seed)
            assert train and test and abs(len(train) / count - 0.5) < 0.21
            assert not caught or count < 9
    # A side of a side is split as freely.
    _, rest = images(names, range(100)).split_classes()
    part, _ = rest.split_classes()
    assert abs(len(part) / len(rest) - 0.5) < 0.21
