"""Every published setting is the one that the papers print.

The table was written from the papers, not from the recipes: GSP with its
supplement, CCP with its supplement, XML. `code` is their public code.
"""

import functools
from itertools import product

import pytest

from training.recipes.named import METHODS, PUBLISHED, named, settings_of

ALL = "cub cars sop inshop"
SMALL, LARGE = "cub cars", "sop inshop"
PAIRS = "c1 c2 ms triplet"
PROXIES = "proxy-anchor proxy-nca soft-triple"
ANY = f"{PAIRS} {PROXIES}"
GSP, CCP, XBM = "gsp gsp-zsr", "ccp ccp-s", "xbm xbm-s"


def margins(positive, negative):
    return {"loss.positive_margin": positive, "loss.negative_margin": negative}


def batches(classes, samples):
    return {"classes_per_batch": classes, "samples_per_class": samples}


def evaluations(steps, patience):
    return {"steps_per_evaluation": steps, "patience": patience}


def multi_similarity(alpha, beta, base):
    return {"loss.alpha": alpha, "loss.beta": beta, "loss.base": base}


def soft_triple(scale, gamma, margin, tau):
    own = {"loss.scale": scale, "loss.gamma": gamma, "loss.margin": margin}
    return own | {"center_weight": tau}


TRIPLE = "soft-triple", "gap", "CCP A.2"
# Data sets, losses, methods, section, setting = value.
FAIR = [
    (ALL, ANY, "gap", "GSP 5.2.1", {"backbone": "bn-inception"}),
    (ALL, ANY, "gap gsp", "GSP 1.1.5", {"embedding_size": 128}),
    (ALL, PAIRS, "gap gsp", "GSP 1.1.5", {"normalization": "l2"}),
    (ALL, ANY, "gap", "GSP 1.1.4", {"optimizer": "adam"}),
    (ALL, PAIRS, "gap ccp", "GSP 1.1.4", {"learning_rate": 1e-5}),
    (ALL, ANY, "gap gsp-zsr", "GSP 1.1.4", {"weight_decay": 1e-4}),
    (ALL, ANY, "gap", "GSP 1.1.4", {"schedule": "constant"}),
    (ALL, PAIRS, "gap xml", "GSP 1.1.4", batches(8, 4)),
    (SMALL, ANY, "gap gsp", "GSP 1.1.4", evaluations(100, 15)),
    (LARGE, ANY, "gap gsp", "GSP 1.1.4", evaluations(1000, 10)),
    (ALL, ANY, "gap", "GSP 1.1.3", {"chosen_by": "map_at_r"}),
    (ALL, ANY, "gap gsp", "GSP 1.1.1", {"crop_size": 227, "resize": 256}),
    # Sides of 40 to 256 pixels.
    (ALL, ANY, "gap gsp", "GSP 1.1.1", {"augmentation": "mlrc"}),
    (ALL, PAIRS, CCP, "CCP A.2", {"augmentation": "mlrc"}),
    (ALL, ANY, "gap", "code", {"clip_norm": 10.0}),
    # Losses.
    (ALL, "c1", "gap", "GSP 1.1.7", {"loss.margin": 0.5}),
    ("cub", "c2", "gap gsp ccp", "GSP 1.1.7", margins(0.0, 0.3841)),
    ("cars", "c2", "gap gsp ccp", "GSP 1.1.7", margins(0.2652, 0.5409)),
    (LARGE, "c2", "gap gsp ccp", "GSP 1.1.7", margins(0.2858, 0.5130)),
    ("cub", "triplet", "gap ccp", "GSP 1.1.7", {"loss.margin": 0.0961}),
    ("cars", "triplet", "gap ccp", "GSP 1.1.7", {"loss.margin": 0.1190}),
    (LARGE, "triplet", "gap ccp", "GSP 1.1.7", {"loss.margin": 0.0451}),
    ("cub sop", "ms", "gap gsp", "GSP 1.1.7", multi_similarity(2, 40, 0.5)),
    ("cars", "ms", "ccp", "GSP 1.1.7", multi_similarity(14.35, 75.83, 0.66)),
    ("inshop", "ms", "gap", "GSP 1.1.7", multi_similarity(8.49, 57.38, 0.41)),
    (ALL, "proxy-anchor", "gap gsp", "GSP 1.1.7", {"loss.margin": 0.1}),
    (ALL, "proxy-anchor", "gap gsp", "GSP 1.1.7", {"loss.alpha": 32.0}),
    ("sop", "proxy-anchor", "gap gsp", "GSP 1.1.7", {"learning_rate": 5e-6}),
    ("cub inshop", "proxy-anchor", "gap", "GSP 1.1.4", {"learning_rate": 1e-5}),
    (ALL, "proxy-nca", "gap gsp", "GSP 1.1.7", {"loss.temperature": 0.11}),
    (ALL, "proxy-nca", "gap gsp", "GSP 1.1.4", {"learning_rate": 1e-5}),
    (ALL, PROXIES, "gap gsp", "GSP 1.1.7", batches(32, 1)),
    (ALL, PROXIES, "gap", "GSP 1.1.7", {"proxy_learning_rate_multiplier": 100}),
    # One epoch: 3/4 of 5,864, 8,054, 59,551 and 25,882 images, by 32.
    ("cub", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 137}),
    ("cars", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 189}),
    ("sop", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 1396}),
    ("inshop", PROXIES, "gap", "GSP 1.1.7", {"warmup_steps": 607}),
    (ALL, PAIRS, "gap gsp ccp xbm", "GSP 1.1.7", {"warmup_steps": 0}),
    ("cub inshop", *TRIPLE, soft_triple(20, 0.1, 0.01, 0.2)),
    ("cars", *TRIPLE, soft_triple(17.69, 1 / 19.18, 0.3588, 0.0669)),
    ("sop", *TRIPLE, soft_triple(100, 1 / 47.9, 0.3145, 0.2)),
    (SMALL, "soft-triple", "gap", "CCP 5.3", {"proxies_per_class": 10}),
    # "S" in the CCP paper's table 2.
    (LARGE, "soft-triple", "gap", "CCP 5.3", {"proxies_per_class": 1}),
    # Methods.
    (ALL, ANY, GSP, "GSP 4.4", {"pooling": "gsp", "transport_ratio": 0.3}),
    (ALL, PAIRS, GSP, "GSP 4.4", {"inverse_temperature": 5.0}),
    (ALL, PROXIES, GSP, "GSP 4.4", {"inverse_temperature": 0.5}),
    (SMALL, ANY, f"{GSP} xml", "GSP 1.1.7", {"num_prototypes": 64}),
    (LARGE, ANY, f"{GSP} xml", "GSP 1.1.7", {"num_prototypes": 128}),
    (ALL, ANY, "gsp-zsr", "GSP 4.4", {"regularizer": "zsr", "ridge": 0.05}),
    (ALL, ANY, "gsp-zsr", "GSP 4.4", {"regularizer_weight": 0.1}),
    (ALL, ANY, "xml", "XML 3.1", {"regularizer": "xml", "ridge": 0.05}),
    (ALL, ANY, "xml", "XML 3.1", {"regularizer_weight": 0.01}),
    (ALL, ANY, "xml", "XML 3.1", {"histogram_inverse_temperature": 10.0}),
    (ALL, ANY, "xml", "XML 3.1", {"pooling": "gap"}),
    (ALL, "c1", "ccp-gsp-zsr", "thesis 5.1", {"pooling": "gsp"}),
    (ALL, "c1", "ccp-gsp-zsr", "GSP 4.4", {"regularizer_weight": 0.1}),
    (SMALL, "c1 c2", "xbm", "CCP A.2 (L)", {"memory_capacity": 25 * 32}),
    ("inshop", "c1 c2", "xbm", "CCP A.2 (L)", {"memory_capacity": 400 * 32}),
    ("sop", "c1 c2", "xbm", "CCP A.2 (L)", {"memory_capacity": 1400 * 32}),
    (SMALL, "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory_capacity": 3 * 32}),
    ("inshop", "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory_capacity": 100 * 32}),
    ("sop", "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory_capacity": 400 * 32}),
    (ALL, "c1 c2", XBM, "CCP A.2", {"memory_warmup_steps": 1000}),
    (ALL, "c1 c2", XBM, "code", {"in_batch_weight": 1.0}),
    (ALL, PAIRS, CCP, "CCP 5.1", {"ccp": "on", "anchor_weight": 2e-4}),
    (SMALL, PAIRS, "ccp", "CCP 5.1", {"proxies_per_class": 8}),
    (LARGE, PAIRS, "ccp", "CCP 5.1", {"proxies_per_class": 4}),
    (ALL, PAIRS, "ccp-s", "CCP 5.3", {"proxies_per_class": 1}),
    (SMALL, PAIRS, CCP, "CCP 5.1", {"ccp_pool_size": 12}),
    (LARGE, PAIRS, CCP, "CCP 5.1", {"ccp_pool_size": 7}),
    (ALL, PAIRS, CCP, "CCP 4.4", {"normalization": "ball", "ccp_patience": 3}),
    (SMALL, PAIRS, CCP, "CCP A.2", evaluations(25, 60)),
    (LARGE, PAIRS, CCP, "CCP A.2", evaluations(250, 60)),
    (ALL, PAIRS, CCP, "CCP A.2", {"ccp_warmup": 0}),
    (ALL, PAIRS, CCP, "CCP A.2", {"proxy_learning_rate_multiplier": 1.0}),
    (ALL, PAIRS, CCP, "code", {"in_batch_weight": 0.1}),
]
CELLS = "gap xbm"
CONVENTIONAL = [
    (ALL, "c2 c1", CELLS, "GSP 1.1.3", {"chosen_by": "precision_at_1"}),
    (ALL, "c2 c1", CELLS, "GSP 1.1.5", {"embedding_size": 512}),
    (ALL, "c2 c1", CELLS, "GSP 1.1.4", {"schedule": "plateau"}),
    (ALL, "c2 c1", CELLS, "GSP 1.1.4", {"plateau_patience": 4}),
    (ALL, "c2 c1", CELLS, "GSP 1.1.4", {"samples_per_class": 4}),
    ("cub", "c2 c1", CELLS, "GSP 1.1.4", {"learning_rate": 1e-5}),
    ("cars sop inshop", "c2 c1", CELLS, "GSP 1.1.4", {"learning_rate": 1e-4}),
    # 5e-6 in the fair protocol.
    ("sop", "proxy-anchor", "gap", "GSP 1.1.4", {"learning_rate": 1e-4}),
    (ALL, PROXIES, "gap", "GSP 1.1.4", {"samples_per_class": 4}),
    (ALL, "c2 c1", "gap xbm ccp", "GSP 1.1.1", {"augmentation": "mlrc"}),
    (SMALL, "c2", "gap ccp", "GSP 1.1.4", evaluations(25, 15)),
    (LARGE, "c2", "gap ccp", "GSP 1.1.4", evaluations(250, 10)),
    (ALL, "c2", "gap", "code", margins(0, 1)),
    (ALL, "triplet", "gap", "code", {"loss.margin": 0.2}),
    (ALL, "c2", "gap", "code", {"plateau_factor": 0.5}),
    (SMALL, "c1", "xbm", "code", {"memory_capacity": 50 * 128}),
    (LARGE, "c1", "xbm", "code", {"memory_capacity": 1400 * 128}),
    (ALL, "c2 c1", "gap xbm ccp", "GSP 1.3", {"pooling": "gap-gmp"}),
    (ALL, "c1", "xbm-gsp-zsr", "GSP 1.3", {"pooling": "gmp-gsp"}),
    (ALL, "c2", "gap", "GSP 1.1.4", {"weight_decay": 1e-4, "batch_size": 128}),
]
# One epoch of 5,864, 8,054, 59,551 and 25,882 images, by the batch.
WARM_UPS = {
    "bn-inception": {"cub": 46, "cars": 63, "sop": 465, "inshop": 202},
    "resnet50": {"cub": 52, "cars": 72, "sop": 532, "inshop": 231},
}


@functools.cache
def recipe_of(dataset, method, loss, protocol):
    if protocol == "fair":
        name = dataset if method == "gap" else f"{dataset}-{method}"
        return named(name, loss=loss)
    return named(f"{dataset}-conventional", **METHODS[method] | {"loss": loss})


def value_of(recipe, name):
    if name.startswith("loss."):
        return recipe.loss_arguments[name.removeprefix("loss.")]
    return getattr(recipe, name)


@pytest.mark.parametrize(
    "protocol, table", [("fair", FAIR), ("conventional", CONVENTIONAL)]
)
def test_every_cell_is_the_papers(protocol, table):
    wrong = []
    for *words, section, values in table:
        for dataset, loss, method in product(*map(str.split, words)):
            cell = dataset, method, loss, protocol
            for name, value in values.items():
                found = value_of(recipe_of(*cell), name)
                if found != pytest.approx(value):
                    wrong.append((cell, name, found, section, value))
    assert not wrong


def test_every_setting_is_in_the_tables_above():
    held = {name for *_, values in (*FAIR, *CONVENTIONAL) for name in values}
    named_settings = set()
    for one in settings_of("published.toml"):
        assert one["source"]
        assert one.keys() <= {"source", "when", "values", *PUBLISHED}
        for values in (one.get(key, {}) for key in ("values", *PUBLISHED)):
            own = values.get("loss_arguments", {})
            named_settings |= {f"loss.{name}" for name in own}
            named_settings |= values.keys() - {"loss_arguments"}
    # How long at most, and what the benchmark freezes.
    assert named_settings - held == {"steps", "frozen"}


def test_conventional_batches_and_warm_ups_are_the_backbones():
    for ending, *facts in (
        ("", "bn-inception", 1e-4, 128),
        ("-resnet50", "resnet50", 4e-4, 112),
    ):
        for dataset, loss in product(PUBLISHED, ANY.split()):
            recipe = named(f"{dataset}-conventional{ending}", loss=loss)
            found = recipe.backbone, recipe.weight_decay, recipe.batch_size
            assert found == (*facts,)
            needed = WARM_UPS[recipe.backbone][dataset]
            assert recipe.warmup_steps == needed * (not recipe.uses_pairs)


def test_options_say_the_same_as_the_cells_of_the_tables():
    assert named("cub", pooling="gsp", regularizer="zsr") == named(
        "cub-gsp-zsr"
    )
    assert named("cars-xbm-s").loss == "c1"
