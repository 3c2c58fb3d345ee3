"""Starting points for images of one's own, and for small data at hand."""

from dataclasses import replace
from typing import Any

from training.recipes.published import LOSSES
from training.recipes.recipe import PAIR_LOSSES, PROXY_LOSSES, Recipe
from training.recipes.sampled_proxies import SAMPLED

# A frozen MobileNetV2 under a trained head: minutes on two cores.
# Any image folder, end to end.
FOLDER = Recipe(
    dataset="folder",
    backbone="mobilenet-v2",
    frozen="batch-norm",
    augmentation="mlrc-area",
    crop_size=224,
    transport_ratio=0.3,
    inverse_temperature=5.0,
    learning_rate=1e-4,
    classes_per_batch=8,
)

FEATURES = Recipe(
    dataset="folder",
    backbone="mobilenet-v2",
    frozen="all",
    cache_features=True,
    crop_size=224,
    pooling="gap",
    transport_ratio=0.3,
    inverse_temperature=5.0,
    negative_margin=0.3841,
    classes_per_batch=8,
    steps=1500,
    steps_per_evaluation=150,
)

RECIPES = {
    "folder": FOLDER,
    "folder-features": FEATURES,
    "csv": replace(FOLDER, dataset="csv"),
    "collage": Recipe(dataset="collage", classes_per_batch=4),
    "omniglot": Recipe(dataset="omniglot", crop_size=48),
    "cifar10": Recipe(dataset="cifar10", classes_per_batch=4, crop_size=32),
    "cifar100": Recipe(dataset="cifar100", crop_size=32),
    "mnist": Recipe(dataset="mnist", classes_per_batch=4, crop_size=28),
}

# Proxies are random at first, and what they ask of a pretrained network then
# spoils it. As the papers have it, batches see many classes and the backbone
# waits.
PROXY_START: dict[str, Any] = {
    "classes_per_batch": 32,
    "samples_per_class": 1,
    "warmup_steps": 100,
}
RECIPES |= {
    f"folder-{loss}": replace(FOLDER, loss=loss, **PROXY_START)
    for loss in PROXY_LOSSES
}

# Alternating proxies with each pair loss, and their single-problem twins.
_PROXIES: tuple[tuple[str, Any], ...] = (("proxies", "single"), ("ccp", "on"))
RECIPES |= {
    f"{base}-{loss}-{ending}": replace(
        RECIPES[base],
        **{**SAMPLED, "loss": loss, "ccp": ccp, "normalization": "ball"},
    )
    for base in ("folder", "folder-features")
    for loss in LOSSES
    if loss in PAIR_LOSSES
    for ending, ccp in _PROXIES
}
