"""Every published setting is the one that the papers print.

The table was written from the papers, not from the recipes: GSP with its
supplement, CCP with its supplement, XML. `code` is their public code.
"""

import functools
from itertools import product

import pytest

from training.recipes.recipe import PUBLISHED, named, settings_of

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


def soft_triple(scale, gamma, margin):
    return {"loss.scale": scale, "loss.gamma": gamma, "loss.margin": margin}


TRIPLE = "soft-triple", "gap", "CCP A.2"
# Data sets, losses, methods, section, setting = value.
FAIR = [
    (ALL, ANY, "gap", "GSP 5.2.1", {"backbone": "bn-inception"}),
    (ALL, ANY, "gap gsp", "GSP 1.1.5", {"embedding_size": 128}),
    (ALL, PAIRS, "gap gsp", "GSP 1.1.5", {"normalization": "l2"}),
    (ALL, PAIRS, "gap ccp", "GSP 1.1.4", {"learning_rate": 1e-5}),
    (ALL, PAIRS, "gap xml", "GSP 1.1.4", batches(8, 4)),
    (SMALL, ANY, "gap gsp", "GSP 1.1.4", evaluations(100, 15)),
    (LARGE, ANY, "gap gsp", "GSP 1.1.4", evaluations(1000, 10)),
    (ALL, ANY, "gap gsp", "GSP 1.1.1", {"crop_size": 227, "resize": 256}),
    # Sides of 40 to 256 pixels.
    (ALL, ANY, "gap gsp", "GSP 1.1.1", {"augmentation": "mlrc"}),
    (ALL, PAIRS, CCP, "CCP A.2", {"augmentation": "mlrc"}),
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
    ("cub inshop", *TRIPLE, soft_triple(20, 0.1, 0.01)),
    ("cars", *TRIPLE, soft_triple(17.69, 1 / 19.18, 0.3588)),
    ("sop", *TRIPLE, soft_triple(100, 1 / 47.9, 0.3145)),
    (SMALL, "soft-triple", "gap", "CCP 5.3", {"proxies_per_class": 10}),
    # "S" in the CCP paper's table 2.
    (LARGE, "soft-triple", "gap", "CCP 5.3", {"proxies_per_class": 1}),
    # Methods.
    (ALL, ANY, GSP, "GSP 4.4", {"pooling": "gsp", "transport_ratio": 0.3}),
    (ALL, PAIRS, GSP, "GSP 4.4", {"inverse_temperature": 5.0}),
    (ALL, PROXIES, GSP, "GSP 4.4", {"inverse_temperature": 0.5}),
    (SMALL, ANY, f"{GSP} xml", "GSP 1.1.7", {"num_prototypes": 64}),
    (LARGE, ANY, f"{GSP} xml", "GSP 1.1.7", {"num_prototypes": 128}),
    (ALL, ANY, "gsp-zsr", "GSP 4.4", {"regularizer.ridge": 0.05}),
    (ALL, ANY, "gsp-zsr", "GSP 4.4", {"regularizer.weight": 0.1}),
    (ALL, ANY, "xml", "XML 3.1", {"regularizer.ridge": 0.05}),
    (ALL, ANY, "xml", "XML 3.1", {"regularizer.weight": 0.01}),
    (ALL, ANY, "xml", "XML 3.1", {"pooling": "gap"}),
    (ALL, "c1", "ccp-gsp-zsr", "thesis 5.1", {"pooling": "gsp"}),
    (ALL, "c1", "ccp-gsp-zsr", "GSP 4.4", {"regularizer.weight": 0.1}),
    (SMALL, "c1 c2", "xbm", "CCP A.2 (L)", {"memory.capacity": 25 * 32}),
    ("inshop", "c1 c2", "xbm", "CCP A.2 (L)", {"memory.capacity": 400 * 32}),
    ("sop", "c1 c2", "xbm", "CCP A.2 (L)", {"memory.capacity": 1400 * 32}),
    (SMALL, "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory.capacity": 3 * 32}),
    ("inshop", "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory.capacity": 100 * 32}),
    ("sop", "c1 c2", "xbm-s", "CCP A.2 (S)", {"memory.capacity": 400 * 32}),
    (ALL, "c1 c2", XBM, "CCP A.2", {"memory.warmup_steps": 1000}),
    (ALL, "c1 c2", XBM, "code", {"in_batch_weight": 1.0}),
    (ALL, PAIRS, CCP, "CCP 5.1", {"ccp.anchor_weight": 2e-4}),
    (SMALL, PAIRS, "ccp", "CCP 5.1", {"proxies_per_class": 8}),
    (LARGE, PAIRS, "ccp", "CCP 5.1", {"proxies_per_class": 4}),
    (ALL, PAIRS, "ccp-s", "CCP 5.3", {"proxies_per_class": 1}),
    (SMALL, PAIRS, CCP, "CCP 5.1", {"ccp_pool_size": 12}),
    (LARGE, PAIRS, CCP, "CCP 5.1", {"ccp_pool_size": 7}),
    (ALL, PAIRS, CCP, "CCP 4.4", {"normalization": "ball", "ccp.patience": 3}),
    (SMALL, PAIRS, CCP, "CCP A.2", evaluations(25, 60)),
    (LARGE, PAIRS, CCP, "CCP A.2", evaluations(250, 60)),
    (ALL, PAIRS, CCP, "CCP A.2", {"ccp.warmup": 0}),
    (ALL, PAIRS, CCP, "CCP A.2", {"proxy_learning_rate_multiplier": 1.0}),
    (ALL, PAIRS, CCP, "code", {"in_batch_weight": 0.1}),
]


@functools.cache
def recipe_of(dataset, method, loss):
    name = dataset if method == "gap" else f"{dataset}-{method}"
    return named(name, loss=loss)


def value_of(recipe, name):
    """A setting, or `loss.margin`, an argument of one."""
    setting, _, argument = name.rpartition(".")
    if not setting:
        return getattr(recipe, name)
    known = {"memory": "memory"}.get(setting, f"{setting}_arguments")
    return getattr(recipe, known)[argument]


def test_every_cell_is_the_papers():
    wrong = []
    for *words, section, values in FAIR:
        for dataset, loss, method in product(*map(str.split, words)):
            cell = dataset, method, loss
            for name, value in values.items():
                found = value_of(recipe_of(*cell), name)
                if found != pytest.approx(value):
                    wrong.append((cell, name, found, section, value))
    assert not wrong


def test_every_setting_is_in_the_tables_above():
    held = {name for *_, values in FAIR for name in values}
    named_settings = set()
    for one in settings_of("published.toml"):
        assert one["source"]
        assert one.keys() <= {"source", "when", "values", *PUBLISHED}
        for values in (one.get(key, {}) for key in ("values", *PUBLISHED)):
            for key, value in values.items():
                argument = key.removesuffix("_arguments")
                if isinstance(value, dict):
                    named_settings |= {f"{argument}.{name}" for name in value}
                else:
                    named_settings.add(key)
    # How long at most, and what the benchmark freezes.
    assert named_settings - held == {"steps", "frozen"}


def test_options_say_the_same_as_the_cells_of_the_tables():
    assert named("cub", pooling="gsp", regularizer="zsr") == named(
        "cub-gsp-zsr"
    )
    assert named("cars-xbm-s").loss == "c1"
