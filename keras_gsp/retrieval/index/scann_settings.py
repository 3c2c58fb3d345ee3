"""How ScaNN is set up: automatic settings, and all of its own arguments."""

import math

# Below this size comparing with all is as fast as any index.
BRUTE_FORCE_ITEMS = 20_000
STEPS = (
    "pca",
    "truncate",
    "tree",
    "upper_tree",
    "score_ah",
    "score_brute_force",
    "reorder",
    "autopilot",
)


def automatic_settings(num_items, num_neighbors):
    """Returns settings for a gallery of a size.

    Small galleries are compared with as a whole. Large ones are split into
    about sqrt(n) leaves, a tenth of which is searched with asymmetric hashing;
    the best candidates are ordered again by their true distance.

    Args:
        num_items: size of the gallery.
        num_neighbors: neighbours that will be asked for.

    Returns:
        A dict from the name of a step of ScaNN's builder to its arguments.
    """
    if num_items < BRUTE_FORCE_ITEMS:
        return {"score_brute_force": {}}
    num_leaves = round(math.sqrt(num_items))
    return {
        "tree": {
            "num_leaves": num_leaves,
            "num_leaves_to_search": max(1, round(num_leaves / 10)),
            "training_sample_size": min(num_items, 100_000),
        },
        "score_ah": {"dimensions_per_block": 2},
        "reorder": {"reordering_num_neighbors": max(100, 10 * num_neighbors)},
    }


def check_settings(settings):
    """Raises `ValueError` for a step that ScaNN's builder does not have."""
    unknown = sorted(set(settings) - set(STEPS))
    if unknown:
        raise ValueError(
            f"`settings` must name steps of ScaNN's builder, {STEPS}. "
            f"Received: {unknown}."
        )


def configured(builder, settings):
    """Calls the builder's steps with their arguments and returns it."""
    for step in STEPS:
        if step in settings:
            builder = getattr(builder, step)(**settings[step])
    return builder
