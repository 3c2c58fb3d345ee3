"""Every published setting is the one that the papers print.

The table below was written from the papers, not from the recipes: GSP with
its supplement, CCP with its supplement, XML. `code` is their public code.
"""

import pytest

from training.recipes import published
from training.recipes.choice import named_recipes
from training.recipes.published import DATASETS, LOSSES
from training.recipes.recipe import PROXY_LOSSES, Recipe

ALL = "cub cars sop inshop"
SMALL, LARGE = "cub cars", "sop inshop"
PAIRS = "c1 c2 ms triplet"
PROXIES = "proxy-anchor proxy-nca soft-triple"
ANY = f"{PAIRS} {PROXIES}"
# Data sets, losses, methods, section, field = value.
FAIR = [
    (ALL, ANY, "gap", "GSP 5.2.1", {"backbone": "bn-inception"}),
    (ALL, ANY, "gap gsp", "GSP 1.1.5", {"embedding_size": 128}),
    (ALL, PAIRS, "gap gsp", "GSP 1.1.5", {"normalization": "l2"}),
    (ALL, ANY, "gap", "GSP 1.1.4", {"optimizer": "adam"}),
    (ALL, PAIRS, "gap ccp", "GSP 1.1.4", {"learning_rate": 1e-5}),
    (ALL, ANY, "gap gsp-zsr", "GSP 1.1.4", {"weight_decay": 1e-4}),
    (ALL, ANY, "gap", "GSP 1.1.4", {"schedule": "constant"}),
    (ALL, PAIRS, "gap xml", "GSP 1.1.4", {"samples_per_class": 4}),
    (ALL, PAIRS, "gap xml", "GSP 1.1.4", {"classes_per_batch": 8}),
    (SMALL, ANY, "gap gsp", "GSP 1.1.4", {"steps_per_evaluation": 100}),
    (LARGE, ANY, "gap gsp", "GSP 1.1.4", {"steps_per_evaluation": 1000}),
    (SMALL, ANY, "gap gsp", "GSP 1.1.4", {"patience": 15}),
    (LARGE, ANY, "gap gsp", "GSP 1.1.4", {"patience": 10}),
    (ALL, ANY, "gap", "GSP 1.1.4", {"protocol": "fair", "repeats": 3}),
    (ALL, ANY, "gap", "GSP 1.1.3", {"chosen_by": "map_at_r"}),
    (ALL, ANY, "gap gsp", "GSP 1.1.1", {"crop_size": 227}),
    # Sides of 40 to 256 pixels.
    (ALL, ANY, "gap gsp", "GSP 1.1.1", {"augmentation": "mlrc"}),
    (ALL, PAIRS, "ccp ccp-s", "CCP A.2", {"augmentation": "mlrc"}),
    (ALL, ANY, "gap", "code", {"clip_norm": 10.0}),
    # Losses.
    (ALL, "c1", "gap", "GSP 1.1.7", {"cosine_margin": 0.5}),
    ("cub", "c2", "gap gsp ccp", "GSP 1.1.7", {"positive_margin": 0.0}),
    ("cub", "c2", "gap gsp ccp", "GSP 1.1.7", {"negative_margin": 0.3841}),
    ("cars", "c2", "gap gsp ccp", "GSP 1.1.7", {"positive_margin": 0.2652}),
    ("cars", "c2", "gap gsp ccp", "GSP 1.1.7", {"negative_margin": 0.5409}),
    (LARGE, "c2", "gap gsp ccp", "GSP 1.1.7", {"positive_margin": 0.2858}),
    (LARGE, "c2", "gap gsp ccp", "GSP 1.1.7", {"negative_margin": 0.5130}),
    ("cub", "triplet", "gap ccp", "GSP 1.1.7", {"triplet_margin": 0.0961}),
    ("cars", "triplet", "gap ccp", "GSP 1.1.7", {"triplet_margin": 0.1190}),
    (LARGE, "triplet", "gap ccp", "GSP 1.1.7", {"triplet_margin": 0.0451}),
    (
        "cub sop",
        "ms",
        "gap gsp ccp",
        "GSP 1.1.7",
        {"ms_alpha": 2.0, "ms_beta": 40.0, "ms_base": 0.5},
    ),
    (
        "cars",
        "ms",
        "gap gsp ccp",
        "GSP 1.1.7",
        {"ms_alpha": 14.35, "ms_beta": 75.83, "ms_base": 0.66},
    ),
    (
        "inshop",
        "ms",
        "gap gsp ccp",
        "GSP 1.1.7",
        {"ms_alpha": 8.49, "ms_beta": 57.38, "ms_base": 0.41},
    ),
    (
        ALL,
        "proxy-anchor",
        "gap gsp",
        "GSP 1.1.7",
        {"anchor_margin": 0.1, "anchor_alpha": 32.0},
    ),
    ("sop", "proxy-anchor", "gap gsp", "GSP 1.1.7", {"learning_rate": 5e-6}),
    (
        "cub cars inshop",
        "proxy-anchor",
        "gap gsp",
        "GSP 1.1.4",
        {"learning_rate": 1e-5},
    ),
    (ALL, "proxy-nca", "gap gsp", "GSP 1.1.7", {"proxy_temperature": 0.11}),
    (ALL, "proxy-nca", "gap gsp", "GSP 1.1.4", {"learning_rate": 1e-5}),
    (ALL, PROXIES, "gap gsp", "GSP 1.1.7", {"classes_per_batch": 32}),
    (ALL, PROXIES, "gap gsp", "GSP 1.1.7", {"samples_per_class": 1}),
    (
        ALL,
        PROXIES,
        "gap gsp",
        "GSP 1.1.7",
        {"proxy_learning_rate_multiplier": 100.0},
    ),
    # One epoch: 3/4 of 5,864, 8,054, 59,551 and 25,882 images, by 32.
    ("cub", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 137}),
    ("cars", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 189}),
    ("sop", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 1396}),
    ("inshop", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 607}),
    (ALL, PAIRS, "gap gsp ccp xbm", "GSP 1.1.7", {"warmup_steps": 0}),
    (
        "cub inshop",
        "soft-triple",
        "gap",
        "CCP A.2",
        {
            "soft_triple_scale": 20.0,
            "soft_triple_gamma": 0.1,
            "soft_triple_tau": 0.2,
            "soft_triple_margin": 0.01,
        },
    ),
    (
        "cars",
        "soft-triple",
        "gap",
        "CCP A.2",
        {
            "soft_triple_scale": 17.69,
            "soft_triple_gamma": 1 / 19.18,
            "soft_triple_tau": 0.0669,
            "soft_triple_margin": 0.3588,
        },
    ),
    (
        "sop",
        "soft-triple",
        "gap",
        "CCP A.2",
        {
            "soft_triple_scale": 100.0,
            "soft_triple_gamma": 1 / 47.9,
            "soft_triple_tau": 0.2,
            "soft_triple_margin": 0.3145,
        },
    ),
    (SMALL, "soft-triple", "gap", "CCP 5.3", {"proxies_per_class": 10}),
    (LARGE, "soft-triple", "gap", "CCP 5.3", {"proxies_per_class": 4}),
    # Methods.
    (ALL, ANY, "gsp gsp-zsr", "GSP 4.4", {"transport_ratio": 0.3}),
    (ALL, PAIRS, "gsp gsp-zsr", "GSP 4.4", {"inverse_temperature": 5.0}),
    (ALL, PROXIES, "gsp gsp-zsr", "GSP 4.4", {"inverse_temperature": 0.5}),
    (SMALL, ANY, "gsp gsp-zsr xml", "GSP 1.1.7", {"num_prototypes": 64}),
    (LARGE, ANY, "gsp gsp-zsr xml", "GSP 1.1.7", {"num_prototypes": 128}),
    (
        ALL,
        "c2 ms triplet proxy-anchor proxy-nca",
        "gsp-zsr",
        "GSP 4.4",
        {"regularizer": "zsr", "regularizer_weight": 0.1, "ridge": 0.05},
    ),
    (
        ALL,
        "c2 proxy-anchor",
        "xml",
        "XML 3.1",
        {
            "regularizer": "xml",
            "regularizer_weight": 0.01,
            "ridge": 0.05,
            "histogram_inverse_temperature": 10.0,
            "pooling": "gap",
        },
    ),
    (
        ALL,
        "c1",
        "ccp-gsp-zsr",
        "thesis 5.1, GSP 4.4",
        {"pooling": "gsp", "regularizer": "zsr", "regularizer_weight": 0.1},
    ),
    (SMALL, "c1 c2", "xbm", "CCP A.2 (L)", {"memory_capacity": 25 * 32}),
    ("inshop", "c1 c2", "xbm", "CCP A.2 (L)", {"memory_capacity": 400 * 32}),
    ("sop", "c1 c2", "xbm", "CCP A.2 (L)", {"memory_capacity": 1400 * 32}),
    (SMALL, "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory_capacity": 3 * 32}),
    ("inshop", "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory_capacity": 100 * 32}),
    ("sop", "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory_capacity": 400 * 32}),
    (ALL, "c1 c2", "xbm xbm-s", "CCP A.2", {"memory_warmup_steps": 1000}),
    (ALL, "c1 c2", "xbm xbm-s", "code", {"in_batch_weight": 1.0}),
    (ALL, PAIRS, "ccp ccp-s", "CCP 5.1", {"anchor_weight": 2e-4}),
    (SMALL, PAIRS, "ccp", "CCP 5.1", {"proxies_per_class": 8}),
    (LARGE, PAIRS, "ccp", "CCP 5.1", {"proxies_per_class": 4}),
    (ALL, PAIRS, "ccp-s", "CCP 5.3", {"proxies_per_class": 1}),
    (SMALL, PAIRS, "ccp ccp-s", "CCP 5.1", {"ccp_pool_size": 12}),
    (LARGE, PAIRS, "ccp ccp-s", "CCP 5.1", {"ccp_pool_size": 7}),
    (ALL, PAIRS, "ccp ccp-s", "CCP 4.4", {"normalization": "ball"}),
    (ALL, PAIRS, "ccp ccp-s", "CCP 4.4", {"ccp_patience": 3}),
    (SMALL, PAIRS, "ccp ccp-s", "CCP A.2", {"steps_per_evaluation": 25}),
    (LARGE, PAIRS, "ccp ccp-s", "CCP A.2", {"steps_per_evaluation": 250}),
    (ALL, PAIRS, "ccp ccp-s", "CCP A.2", {"patience": 60, "ccp_warmup": 0}),
    (
        ALL,
        PAIRS,
        "ccp ccp-s",
        "CCP A.2",
        {"proxy_learning_rate_multiplier": 1.0},
    ),
    (ALL, PAIRS, "ccp ccp-s", "code", {"in_batch_weight": 0.1}),
    # Once in CCP A.2.
    (ALL, PAIRS, "ccp ccp-s", "thesis 5.1", {"repeats": 3}),
]
CONVENTIONAL = [
    (ALL, "c2 c1", "gap xbm", "GSP 1.1.3", {"chosen_by": "precision_at_1"}),
    (ALL, "c2 c1", "gap xbm", "GSP 1.1.5", {"embedding_size": 512}),
    (ALL, "c2 c1", "gap xbm", "GSP 1.1.4", {"schedule": "plateau"}),
    (ALL, "c2 c1", "gap xbm", "GSP 1.1.4", {"plateau_patience": 4}),
    (ALL, "c2 c1", "gap xbm", "GSP 1.1.4", {"repeats": 3}),
    (ALL, "c2 c1", "gap xbm", "GSP 1.1.4", {"samples_per_class": 4}),
    ("cub", "c2 c1", "gap xbm", "GSP 1.1.4", {"learning_rate": 1e-5}),
    (
        "cars sop inshop",
        "c2 c1",
        "gap xbm",
        "GSP 1.1.4",
        {"learning_rate": 1e-4},
    ),
    # 5e-6 in the fair protocol.
    ("sop", "proxy-anchor", "gap", "GSP 1.1.4", {"learning_rate": 1e-4}),
    (ALL, PROXIES, "gap", "GSP 1.1.4", {"samples_per_class": 4}),
    (ALL, "c2 c1", "gap xbm ccp", "GSP 1.1.1", {"augmentation": "mlrc"}),
    (SMALL, "c2", "gap ccp", "GSP 1.1.4", {"steps_per_evaluation": 25}),
    (LARGE, "c2", "gap ccp", "GSP 1.1.4", {"steps_per_evaluation": 250}),
    (SMALL, "c2", "gap ccp", "GSP 1.1.4", {"patience": 15}),
    (LARGE, "c2", "gap ccp", "GSP 1.1.4", {"patience": 10}),
    (ALL, "c2", "gap", "code", {"positive_margin": 0, "negative_margin": 1}),
    (ALL, "triplet", "gap", "code", {"triplet_margin": 0.2}),
    (ALL, "c2", "gap", "code", {"plateau_factor": 0.5}),
    (SMALL, "c1", "xbm", "code", {"memory_capacity": 50 * 128}),
    (LARGE, "c1", "xbm", "code", {"memory_capacity": 1400 * 128}),
    (ALL, "c2 c1", "gap xbm ccp", "GSP 1.3", {"pooling": "gap-gmp"}),
    (ALL, "c1", "xbm-gsp-zsr", "GSP 1.3", {"pooling": "gmp-gsp"}),
]
BACKBONES = {
    "bn-inception": {"weight_decay": 1e-4, "batch_size": 128},
    "resnet50": {"weight_decay": 4e-4, "batch_size": 112},
}


def cells(table):
    for datasets, losses, methods, section, values in table:
        for dataset in datasets.split():
            for loss in losses.split():
                for method in methods.split():
                    yield dataset, loss, method, section, values


@pytest.mark.parametrize(
    "protocol, table", [("fair", FAIR), ("conventional", CONVENTIONAL)]
)
def test_every_cell_is_the_papers(protocol, table):
    wrong = []
    for dataset, loss, method, section, values in cells(table):
        recipe = published.published_recipe(dataset, method, loss, protocol)
        wrong += [
            f"{dataset} {loss} {method}: {name}={getattr(recipe, name)}, "
            f"{section} has {value}"
            for name, value in values.items()
            if getattr(recipe, name) != pytest.approx(value)
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_conventional_batches_and_decay_are_the_backbones(backbone):
    for dataset in DATASETS:
        recipe = published.published_recipe(
            dataset, protocol="conventional", backbone=backbone
        )
        assert recipe.backbone == backbone
        for name, value in BACKBONES[backbone].items():
            assert getattr(recipe, name) == value


def test_every_setting_is_held_against_the_papers():
    """No number of a published recipe that the table above does not name."""
    held = {
        name for table in (FAIR, CONVENTIONAL) for *_, v in table for name in v
    }
    held |= {"classes_per_batch", "weight_decay", "backbone"}
    groups = [
        published.SHARED,
        published.CONVENTIONAL,
        *LOSSES.values(),
        *(settings for _, settings in published.METHODS.values()),
    ]
    settings = [one for group in groups for one in group]
    assert all(setting.source for setting in settings)
    named = {name for setting in settings for name in setting.values}
    assert named <= {*Recipe.__dataclass_fields__}
    # How long at most, and what the benchmark freezes.
    assert named - held == {"steps", "frozen"}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_has_the_same_numbers_set_on_every_data_set(loss):
    named = {
        dataset: {
            name
            for setting in LOSSES[loss]
            if dataset in setting.datasets
            for name in setting.values
        }
        - {"learning_rate"}  # of ProxyAnchor on one of them alone
        for dataset in DATASETS
    }
    assert named["cub"]
    assert all(names == named["cub"] for names in named.values())


def test_a_base_recipe_switches_nothing_on():
    recipes = named_recipes()
    for dataset in DATASETS:
        for recipe in (recipes[dataset], recipes[f"{dataset}-conventional"]):
            assert (recipe.ccp, recipe.memory) == ("off", "none")
            assert recipe.regularizer == "none"
            assert recipe.pooling in ("gap", "gap-gmp")
            assert recipe.samples_per_class == 4 and not recipe.warmup_steps
    assert recipes["sop"].memory_capacity == 1400 * 32
    assert recipes["cars"].ms_alpha == 14.35


# One epoch of 5,864, 8,054, 59,551 and 25,882 images, by the batch.
WARM_UPS = {
    "bn-inception": {"cub": 46, "cars": 63, "sop": 465, "inshop": 202},
    "resnet50": {"cub": 52, "cars": 72, "sop": 532, "inshop": 231},
}


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_warm_up_of_the_conventional_protocol_is_an_epoch_of_its_batches(
    backbone, dataset
):
    for loss in LOSSES:
        recipe = published.published_recipe(
            dataset, loss=loss, protocol="conventional", backbone=backbone
        )
        needed = WARM_UPS[backbone][dataset] if loss in PROXY_LOSSES else 0
        assert recipe.warmup_steps == needed


@pytest.mark.parametrize("loss", ["c1", "c2"])
def test_a_small_memory_has_no_conventional_size(loss):
    with pytest.raises(ValueError, match="xbm-s.*protocol=conventional"):
        published.published_recipe("cub", "xbm-s", loss, "conventional")
