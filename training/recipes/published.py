"""The papers' settings as data, each with where it stands.

Sources: the configuration files of the public reference code of GSP
(`generalized-sum-pooling`, folder tensorflow/configs) and CCP (`ccp-dml`,
configs and framework); the papers where the code leaves the choice open. The
losses' own settings are in `published_losses`. The papers' results are not
here: whoever has a paper at hand lists them in a file for `training.tables
--published`.

Where a recipe differs: the reference code adds weight decay to the gradient
(Adam with L2); ours is AdamW's. Its conventional runs add max pooling to
average pooling and halve the learning rate on plateaus; ours do neither.
"""

from training.recipes.published_losses import LOSSES
from training.recipes.recipe import Recipe
from training.recipes.setting import LARGE, SMALL, Setting

SHARED = (
    Setting(
        {
            "backbone": "bn-inception",
            "embedding_size": 128,
            "learning_rate": 1e-5,
            "classes_per_batch": 8,
            "samples_per_class": 4,
        },
        "GSP code, dml_default.yaml",
    ),
    Setting({"weight_decay": 1e-4}, "CCP code, configs/default.py"),
    Setting(
        {"frozen": "batch-norm"},
        "A Metric Learning Reality Check, section 4",
    ),
    Setting(
        {"augmentation": "mlrc-area", "crop_size": 227},
        "CCP code, utilities/dataset_utils.py",
    ),
    Setting({"protocol": "fair", "repeats": 3}, "GSP code, sample_runs.sh"),
    Setting(
        {"steps_per_evaluation": 100, "patience": 15, "steps": 1_000_000},
        "GSP code, dml_small.yaml",
        SMALL,
    ),
    Setting(
        {"steps_per_evaluation": 1000, "patience": 10, "steps": 10_000_000},
        "GSP code, dml_large.yaml",
        LARGE,
    ),
)

_GSP = (
    Setting(
        {"transport_ratio": 0.3, "inverse_temperature": 5.0},
        "GSP code, dml_small.yaml and dml_large.yaml",
    ),
    Setting({"num_prototypes": 64}, "GSP code, dml_small.yaml", SMALL),
    Setting({"num_prototypes": 128}, "GSP code, dml_large.yaml", LARGE),
)
_ZSR = Setting(
    {"regularizer_weight": 0.1, "ridge": 0.05}, "GSP code, dml_small.yaml"
)
_XML = Setting(
    {
        "regularizer_weight": 0.01,
        "ridge": 0.05,
        "histogram_inverse_temperature": 10.0,
    },
    "XML paper, section 3",
)
_XBM = (
    Setting({"memory_warmup_steps": 1000}, "GSP code, dml_small.yaml"),
    Setting({"memory_capacity": 25 * 32}, "GSP code, dml_small.yaml", SMALL),
    Setting({"memory_capacity": 400 * 32}, "GSP code, dml_large.yaml", LARGE),
)
_CCP = (
    Setting(
        {
            "normalization": "ball",
            "anchor_weight": 2e-4,
            "anchor_decay": 1.0,
            "ccp_patience": 3,
            "proxy_learning_rate_multiplier": 1.0,
        },
        "CCP code, losses/ccp/loss.py and dml_default.yaml",
    ),
    # 0 in the paper.
    Setting({"in_batch_weight": 0.1}, "CCP code, losses/ccp/loss.py"),
    Setting(
        {
            "proxies_per_class": 8,
            "ccp_pool_size": 12,
            "steps_per_evaluation": 25,
            "patience": 60,
        },
        "CCP code, dml_small.yaml",
        SMALL,
    ),
    Setting(
        {
            "proxies_per_class": 4,
            "ccp_pool_size": 7,
            "steps_per_evaluation": 250,
            "patience": 60,
        },
        "CCP code, dml_large.yaml",
        LARGE,
    ),
)

# Word -> what it switches on, and its settings.
METHODS = {
    "gap": ({"pooling": "gap"}, ()),
    "gsp": ({"pooling": "gsp"}, _GSP),
    "gsp-zsr": ({"pooling": "gsp", "regularizer": "zsr"}, (*_GSP, _ZSR)),
    "xml": ({"pooling": "gap", "regularizer": "xml"}, (_XML,)),
    "ccp": ({"pooling": "gap", "ccp": "on"}, _CCP),
    "xbm": ({"pooling": "gap", "memory": "xbm", "loss": "c1"}, _XBM),
    "xbm-gsp-zsr": (
        {
            "pooling": "gsp",
            "regularizer": "zsr",
            "memory": "xbm",
            "loss": "c1",
        },
        (*_GSP, _ZSR, *_XBM),
    ),
}

CONVENTIONAL = (
    Setting(
        {
            "protocol": "conventional",
            "embedding_size": 512,
            "classes_per_batch": 32,
            "positive_margin": 0.0,
            "negative_margin": 1.0,
            "triplet_margin": 0.2,
        },
        "GSP code, conventional_bninception_default.yaml",
    ),
    Setting(
        {
            "steps_per_evaluation": 25,
            "patience": 15,
            "memory_capacity": 50 * 128,
        },
        "GSP code, bninception_small.yaml",
        SMALL,
    ),
    Setting(
        {
            "steps_per_evaluation": 250,
            "patience": 10,
            "learning_rate": 1e-4,
            "memory_capacity": 1400 * 128,
        },
        "GSP code, bninception_large.yaml",
        LARGE,
    ),
)


def published_recipe(
    dataset: str,
    method: str = "gap",
    loss: str | None = None,
    protocol: str = "fair",
) -> Recipe:
    """The published settings of one cell of a table.

    Args:
        dataset: `cub`, `cars`, `sop` or `inshop`.
        method: One of `METHODS`.
        loss: One of `LOSSES`; the method's own (`c1` with a memory), else
            `c2`.
        protocol: `fair` or `conventional`.

    Returns:
        The recipe. It has no weights file: the papers start from ImageNet
        weights, to be named as `backbone_weights`.
    """
    switches, settings = METHODS[method]
    loss = loss or switches.get("loss", "c2")
    conventional = CONVENTIONAL if protocol == "conventional" else ()
    values = _values(
        (*SHARED, *LOSSES[loss], *settings, *conventional), dataset
    )
    return Recipe(**{**values, **switches, "dataset": dataset, "loss": loss})


def base_recipe(dataset: str, protocol: str = "fair") -> Recipe:
    """Every method's settings at once, none of them switched on.

    What `python -m training.train cub --loss ms --pooling gsp` starts from.
    CCP's own normalisation, evaluations and proxies come with `cub-ccp`
    alone, where they do not disturb the others.

    Args:
        dataset: As for `published_recipe`.
        protocol: As for `published_recipe`.
    """
    losses = [s for word, s in LOSSES.items() if word != "soft-triple"]
    conventional = CONVENTIONAL if protocol == "conventional" else ()
    chosen = (SHARED, *losses, _GSP, _XBM, conventional)
    values = _values([s for part in chosen for s in part], dataset)
    return Recipe(dataset=dataset, **values)


def _values(settings, dataset):
    return {
        name: value
        for setting in settings
        if dataset in setting.datasets
        for name, value in setting.values.items()
    }


RECIPES = {}
for _dataset in SMALL + LARGE:
    RECIPES[_dataset] = base_recipe(_dataset)
    RECIPES[f"{_dataset}-conventional"] = base_recipe(_dataset, "conventional")
    for _method in METHODS:
        if _method != "gap":
            RECIPES[f"{_dataset}-{_method}"] = published_recipe(
                _dataset, _method
            )
