"""A study is a table of recipes; its finished models stay as they are."""

import itertools
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import keras_gsp as gsp
import training.research.protocols.run_protocol as protocol
from tests.training.datasets import layouts
from training.datasets.archives import unpacked
from training.datasets.image_set import ImageSet, RetrievalSplits
from training.recipes.loss import build_loss
from training.recipes.published import LARGE, SMALL
from training.recipes.published import METHODS as PUBLISHED
from training.recipes.recipe import PROXY_LOSSES
from training.research import study
from training.research.protocols.kept_study import ENDING, keep_study
from training.research.protocols.query_scores import save_query_scores
from training.research.results.__main__ import take_in
from training.research.results.pages import DOCS
from training.research.results.records import for_a_page, record_text
from training.research.results.study_results import study_results
from training.research.studies import (
    BASELINES,
    METHODS,
    SIZES,
    STUDIES,
    UNTRAINED,
)
from training.research.study import StudyCommand, chosen_cells, run_study
from training.research.tables import main as tables_main
from training.research.tables import study_table
from training.runs.kept_embeddings import FILE
from training.runs.run_directory import RunDirectory, write_json, write_text
from training.runs.run_lock import RunLock, RunTakenError
from training.runs.train_run import run_settings


def image_set(name, num_classes):
    labels = np.repeat(np.arange(num_classes), 4)
    names = tuple(f"{name}{i}" for i in range(num_classes))
    return ImageSet(labels, names, paths=tuple(map(str, range(len(labels)))))


SPLITS = RetrievalSplits("x", image_set("train", 24), image_set("test", 6))
# How good the stand-in models are: the smaller, the better.
NOISE = {"untrained": 3.0, "gap": 1.0, "single": 0.6, "ccp": 0.3}


@pytest.fixture
def trained(monkeypatch):
    """Stands in for training; returns what was trained."""
    done = []

    def train_member(member, splits, ledger):
        directory = ledger.directory(member)
        cell = ledger.folder.name
        directory.path.mkdir(parents=True, exist_ok=True)
        with RunLock(directory.path):
            done.append(f"{cell} {member.name}")
        rng = np.random.default_rng(member.recipe.seed)
        labels = splits.test.labels
        noise = NOISE.get(cell.rpartition(".")[2], 1.0)
        embeddings = np.eye(8)[labels] + noise * rng.normal(
            size=(len(labels), 8)
        )
        np.savez(directory.path / FILE, test=embeddings)
        save_query_scores(directory.path, splits)
        lines = [
            f'{{"step": {step}, "seconds": {3 * step}, '
            f'"val_map_at_r": 0.{step}, "ccp_problem": {problem}, '
            '"ccp_steps": 10}\n'
            for step, problem in ((10, 1), (20, 2))
        ]
        write_text(directory.history, "".join(lines))
        write_json(directory.settings, run_settings(member.recipe))
        write_json(directory.scores, {"map_at_r": 0.1})
        ledger.record(member, 60.0, {"map_at_r": 0.1})

    monkeypatch.setattr(protocol, "train_member", train_member)
    monkeypatch.setattr(study, "_splits", lambda recipes: SPLITS)
    return done


@pytest.fixture
def places(tmp_path):
    """A data set and weights that are there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "weights").touch()
    return {
        "data_dir": str(tmp_path / "data"),
        "backbone_weights": str(tmp_path / "weights"),
    }


def command(tmp_path, name="emoji", losses=("c2",), **settings):
    return StudyCommand(study=name, losses=losses, runs=tmp_path, **settings)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_begins_with_the_untrained_baseline(name):
    table = STUDIES[name]
    cells = list(table.cells)
    assert len(cells) > 1
    for (_, method), recipe in table.cells.items():
        assert (recipe.ccp == "on") == method.startswith("ccp")
        assert (recipe.steps == 0) == (method == "untrained")
        assert {*BASELINES.get(method, ())[:1]} <= {*table.methods}
    assert cells[0] == UNTRAINED


@pytest.mark.parametrize("name", SMALL + LARGE)
def test_published_memories_and_proxies_stand_beside_each_other(name):
    cells = STUDIES[name].cells
    for loss in ("c1", "c2"):
        for size in ("", "-s"):
            memory, proxies = (
                cells[loss, f"{word}{size}"] for word in ("xbm", "ccp")
            )
            assert (memory.memory, memory.ccp) == ("xbm", "off")
            assert (proxies.memory, proxies.ccp) == ("none", "on")
        assert cells[loss, "ccp-s"].proxies_per_class == 1


def test_a_methods_word_means_the_same_in_every_table():
    """With or without ZSR, above all, where a paper's word leaves it open."""
    names = ("pooling", "regularizer", "memory", "ccp")
    for method, (switches, _) in PUBLISHED.items():
        named = {k: v for k, v in METHODS.get(method, {}).items() if k in names}
        published = {k: v for k, v in switches.items() if k in names}
        assert method not in METHODS or named == published


def test_a_study_of_glyphs_has_every_loss_of_the_package():
    cells = STUDIES["glyphs-losses"].cells
    found = [
        build_loss(recipe)
        for (_, method), recipe in cells.items()
        if method == "gap"
    ]
    kinds = {type(loss).__name__ for loss in found}
    of_the_package = {
        name
        for name, loss in vars(gsp.losses).items()
        if isinstance(loss, type) and issubclass(loss, gsp.losses.MetricLoss)
    }
    bases = {"MetricLoss", "PairLoss", "ListLoss", "ProxyLoss"}
    regularizers = {"ZeroShotLoss", "CrossBatchLoss"}
    assert kinds == of_the_package - bases - regularizers
    assert {getattr(loss, "miner", None) for loss in found} >= {
        "batch_hard",
        "semi_hard",
        "distance_weighted",
    }
    assert len(cells) == len(found) + 1


def test_a_comparison_changes_one_thing():
    cells = STUDIES["emoji"].cells
    for row in STUDIES["emoji"].rows[1:]:
        pairs = [("gap", "gsp", {"pooling"})]
        if row in PROXY_LOSSES:
            pairs.append(("gap", "ccp", {"ccp", "ccp_patience"}))
        elif (row, "single") in cells:
            pairs += [
                ("single", "ccp", {"ccp"}),
                ("ccp", "ccp-gsp", {"pooling"}),
                ("gsp", "gsp-zsr", {"regularizer", "log_regularizer_share"}),
                ("gap", "xml", {"regularizer", "log_regularizer_share"}),
            ]
        for one, other, changed in pairs:
            first, second = vars(cells[row, one]), vars(cells[row, other])
            assert {k for k in first if first[k] != second[k]} == changed


def test_settings_of_gsp_stand_beside_those_of_the_clutter():
    study = STUDIES["emoji-clutter-gsp"]
    default = vars(study.cells["c2", "gsp"])
    found = {}
    for row in study.compared:
        own = vars(study.cells[row, "gsp"])
        found[row] = {k: own[k] for k in own if own[k] != default[k]}
    names = {"num_prototypes", "transport_ratio", "inverse_temperature"}
    assert all(found.values())
    assert {name for changed in found.values() for name in changed} == names
    assert {*study.compared.values()} == {"c2"}


@pytest.mark.parametrize("name", STUDIES)
def test_no_cell_is_trained_twice(name):
    recipes = [tuple(vars(r).items()) for r in STUDIES[name].cells.values()]
    assert len({*recipes}) == len(recipes)


@pytest.mark.parametrize("name", STUDIES)
def test_proxies_are_chosen_from_enough_samples(name):
    for recipe in STUDIES[name].cells.values():
        if recipe.samples_proxies:
            assert recipe.ccp_pool_size >= recipe.proxies_per_class


def test_every_batch_size_is_trained_with_and_without_proxies():
    pairs = set(itertools.product(SIZES, ("gap", "ccp")))
    cells = STUDIES["emoji-batch"].cells
    assert {*cells} == {UNTRAINED} | {
        (f"c2-batch{size}", method) for size, method in pairs
    }
    for size, method in pairs:
        recipe = cells[f"c2-batch{size}", method]
        images = recipe.classes_per_batch * recipe.samples_per_class
        assert (images, recipe.loss) == (size, "c2")


def test_one_seed_of_all_is_trained_before_the_next(tmp_path, trained, places):
    methods = ("gap", "single", "ccp")
    run_study(command(tmp_path, methods=methods, seeds=2, **places))
    first = [f"c2.{method} seed0" for method in methods]
    again = [f"c2.{method} seed1" for method in methods]
    # The features of a pretrained network are the same for every seed.
    assert trained == ["-.untrained seed0", *first, *again]


def test_finished_models_are_not_trained_again(tmp_path, trained, places):
    run_study(command(tmp_path, methods=("gap",), seeds=1, **places))
    run_study(command(tmp_path, methods=("gap", "gsp"), seeds=2, **places))
    assert trained[2:] == ["c2.gsp seed0", "c2.gap seed1", "c2.gsp seed1"]


def test_what_another_process_trains_is_left_to_it(
    tmp_path, trained, places, capsys
):
    one = command(tmp_path, methods=("gap", "single"), seeds=1, **places)
    cell = RunDirectory(tmp_path / "emoji" / "c2.gap")
    cell.begin(run_settings(chosen_cells(one)["c2", "gap"]))
    taken = cell.path / "members" / "seed0"
    taken.mkdir(parents=True)
    with RunLock(taken):
        run_study(one)
    assert trained == ["-.untrained seed0", "c2.single seed0"]
    assert "left to other processes: 1" in capsys.readouterr().out
    assert not cell.is_finished
    # That process was killed.
    run_study(one)
    assert trained[2:] == ["c2.gap seed0"]
    assert cell.is_finished


def test_what_another_process_ended_or_let_go_meanwhile(
    tmp_path, trained, places, monkeypatch
):
    alone, cells = protocol.train_member, {}

    def train_member(member, splits, ledger):
        cell = ledger.folder.name
        cells[cell] = cells.get(cell, 0) + 1
        if cell == "c2.gap" and cells[cell] == 1:
            alone(member, splits, ledger)
            raise FileExistsError("must not hold a finished run")
        if cell == "c2.single" and cells[cell] == 1:
            raise RunTakenError("another process trains it")
        alone(member, splits, ledger)

    monkeypatch.setattr(protocol, "train_member", train_member)
    one = command(tmp_path, methods=("gap", "single"), seeds=1, **places)
    run_study(one)
    assert trained == ["-.untrained seed0", "c2.gap seed0", "c2.single seed0"]
    assert cells == {"-.untrained": 1, "c2.gap": 1, "c2.single": 2}


def test_a_model_that_cannot_be_trained_ends_the_study(
    tmp_path, trained, places, monkeypatch
):
    def train_member(member, splits, ledger):
        raise FileExistsError("holiday.jpg")

    monkeypatch.setattr(protocol, "train_member", train_member)
    with pytest.raises(FileExistsError, match="holiday"):
        run_study(command(tmp_path, methods=("gap",), seeds=1, **places))


def test_cells_of_another_recipe_are_refused(tmp_path, trained, places):
    run_study(command(tmp_path, methods=("gap",), seeds=1, **places))
    with pytest.raises(ValueError, match="another steps"):
        run_study(command(tmp_path, methods=("gap",), steps=50, **places))


def test_a_study_goes_on_elsewhere_from_what_was_kept(
    tmp_path, trained, places
):
    methods = ("gap", "single")
    here = run_study(
        command(tmp_path / "here", methods=methods, seeds=2, **places)
    )
    # Power went while a line was written.
    with (here / "c2.gap" / "ledger.jsonl").open("a") as file:
        file.write('{"member": "se')
    take_in(here, tmp_path / "docs")
    kept = tmp_path / "docs" / f"emoji{ENDING}"
    trained.clear()
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("data", "weights"):
        (tmp_path / name).rename(moved / name)
    places = {name: str(moved / Path(p).name) for name, p in places.items()}
    there = run_study(
        command(
            tmp_path / "there",
            methods=(*methods, "ccp"),
            seeds=2,
            kept=kept,
            **places,
        )
    )
    assert trained == ["c2.ccp seed0", "c2.ccp seed1"]
    found, rows = study_results(there)["rows"], study_results(here)["rows"]
    assert found[: len(rows)] == rows
    assert found[-1]["differences"]["single"]["num_seeds"] == 2
    recipe = RunDirectory(there / "c2.gap" / "members" / "seed0").read_recipe()
    assert recipe.data_dir == places["data_dir"]
    # Cells that are not asked for come along, or the next to be kept would
    # lack them.
    alone = run_study(
        command(
            tmp_path / "alone", methods=("ccp",), seeds=1, kept=kept, **places
        )
    )
    assert [row["method"] for row in study_results(alone)["rows"]] == [
        "untrained",
        *methods,
        "ccp",
    ]
    assert study_results(alone)["rows"][:3] == rows
    # What has gone on with more seeds keeps them when the file is given again.
    more = {"methods": ("gap",), "seeds": 3, "kept": kept}
    run_study(command(tmp_path / "alone", **more, **places))
    again = {"methods": ("ccp",), "seeds": 1, "kept": kept}
    run_study(command(tmp_path / "alone", **again, **places))
    assert RunDirectory(alone / "c2.gap").read_scores()["num_models"] == 3
    # Of other settings they stay where they are.
    trained.clear()
    shorter = run_study(
        command(
            tmp_path / "shorter",
            losses=("c1",),
            methods=("gap",),
            steps=50,
            seeds=1,
            kept=kept,
            **places,
        )
    )
    assert trained == ["c1.gap seed0"]
    assert sorted(one.name for one in shorter.iterdir()) == [
        "-.untrained",
        "c1.gap",
    ]
    # A second time nothing is missing, and the same bytes are kept.
    trained.clear()
    run_study(
        command(
            tmp_path / "there", methods=methods, seeds=2, kept=kept, **places
        )
    )
    assert not trained
    assert keep_study(here, tmp_path / f"again{ENDING}")
    assert (tmp_path / f"again{ENDING}").read_bytes() == kept.read_bytes()
    # Nothing says where the data lay.
    assert (
        str(tmp_path)
        not in (unpacked(kept) / "c2.gap" / "settings.json").read_text()
    )


def test_kept_models_of_another_study_are_refused(tmp_path, trained, places):
    here = run_study(
        command(tmp_path / "here", methods=("gap",), seeds=1, **places)
    )
    kept = tmp_path / f"emoji{ENDING}"
    keep_study(here, kept)
    there = tmp_path / "there"
    chosen = {"methods": ("gap",), "seeds": 1, "kept": kept}
    with pytest.raises(ValueError, match="steps=1500 instead of 50"):
        run_study(command(there, steps=50, **chosen, **places))
    other = tmp_path / "other.zip"
    other.touch()
    with pytest.raises(ValueError, match="data_dir='data' instead of 'other'"):
        run_study(command(there, **chosen, **places | {"data_dir": str(other)}))
    with pytest.raises(ValueError, match="'folder' instead of 'glyphs'"):
        run_study(StudyCommand("glyphs", losses=("c2",), runs=there, kept=kept))
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(ValueError, match="has none of its cells"):
        run_study(command(there, **chosen | {"kept": other}, **places))
    kept.write_bytes(kept.read_bytes()[:-200])
    with pytest.raises(ValueError, match="whole zip or tar"):
        run_study(command(there, **chosen, **places))
    chosen["kept"] = tmp_path / "lost.tar.xz"
    with pytest.raises(FileNotFoundError, match="lost.tar.xz"):
        run_study(command(there, **chosen, **places))
    assert not there.exists()


def test_a_record_is_of_the_study_that_plans_all_its_cells(
    tmp_path, trained, places
):
    chosen = {"methods": ("gap", "gsp"), "seeds": 1}
    here = run_study(
        command(tmp_path / "here", "emoji-clutter", **chosen, **places)
    )
    kept = tmp_path / f"emoji-clutter{ENDING}"
    keep_study(here, kept)
    trained.clear()
    name, rows = "emoji-clutter-gsp", ("c2", "c2-r0.1e20")
    there = run_study(
        command(tmp_path / "there", name, rows, kept=kept, **chosen, **places)
    )
    assert trained == ["c2-r0.1e20.gsp seed0"]
    # More of its cells were begun as those of the other study.
    for folder, study_name in ((here, "emoji-clutter"), (there, name)):
        record = study_results(folder)
        assert record["study"] == study_name
        assert record["title"] == STUDIES[study_name].title
        assert record["about"] == STUDIES[study_name].about
    assert {*record["rows"][-1]["differences"]} == {"gap", "c2", "untrained"}


def test_a_fair_study_keeps_no_models(tmp_path, trained, places):
    folder = run_study(
        command(tmp_path, "birds50-frozen", methods=("gap",), seeds=1, **places)
    )
    take_in(folder, tmp_path / "docs")
    names = {path.name for path in (tmp_path / "docs").iterdir()}
    assert names == {"birds50-frozen.json"}


def test_scores_of_a_cell_are_made_up_for(tmp_path, trained, places):
    one = command(tmp_path, methods=("gap",), seeds=1, **places)
    directory = RunDirectory(run_study(one) / "c2.gap")
    before = directory.scores.read_text()
    # Killed between its last model and its scores.
    directory.scores.unlink()
    run_study(one)
    assert directory.scores.read_text() == before


@pytest.mark.parametrize(
    "path", sorted(DOCS.glob(f"*{ENDING}")), ids=lambda path: path.name
)
def test_a_record_is_what_its_kept_models_say(path, tmp_path):
    source = tmp_path / path.name.removesuffix(ENDING)
    source.symlink_to(unpacked(path))
    record = path.with_name(f"{source.name}.json").read_text()
    assert record_text(for_a_page(study_results(source))) == record


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"study": "birds"}, "study='birds'"),
        ({"study": "cub", "losses": ("c3",)}, "losses='c3'"),
        ({"study": "cub", "methods": ("gas",)}, "methods='gas'"),
        ({"study": "emoji", "steps": 50}, "no second problem begins"),
        ({"study": "emoji", "seeds": 0}, "`seeds` must be positive"),
        ({"study": "emoji", "seeds": 2.5}, "`seeds` must be an integer"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        chosen_cells(StudyCommand(**settings))


def test_missing_sources_are_refused_before_anything_is_read(tmp_path, places):
    with pytest.raises(ValueError, match="`data_dir` must name"):
        run_study(command(tmp_path))
    data = {"data_dir": places["data_dir"]}
    with pytest.raises(ValueError, match="`backbone_weights` must name"):
        run_study(command(tmp_path, **data))
    lost = {**data, "backbone_weights": str(tmp_path / "lost")}
    with pytest.raises(FileNotFoundError, match="`backbone_weights` must"):
        run_study(command(tmp_path, **lost))


@pytest.mark.parametrize(
    "name, words",
    [
        # 10 classes to learn from, 3 of 4 folds of them in training.
        ("emoji-batch", "classes_per_batch=32 for 7"),
        ("emoji", "classes_per_batch=8 for 7"),
        # 20 classes: 4 distract, 6 to learn from.
        ("components", "classes_per_batch=8 for 6"),
        ("collage", "classes_per_batch=24 for 6"),
    ],
)
def test_too_few_classes_for_a_batch_are_refused_before_images_are_decoded(
    tmp_path, places, monkeypatch, name, words
):
    classes = [f"class {i:02}" for i in range(20)]
    layouts.folder(Path(places["data_dir"]), classes)

    def decode(*arguments, **settings):
        raise AssertionError("an image was decoded")

    for function in ("readable_images", "evaluation_batches"):
        monkeypatch.setattr(gsp.data, function, decode)
    recipes = dict(STUDIES[name].cells)
    if name == "collage":
        for cell, recipe in recipes.items():
            recipes[cell] = replace(recipe, classes_per_batch=24)
        table = replace(STUDIES[name], cells=recipes)
        monkeypatch.setitem(study.STUDIES, name, table)
    rows = ("c2",) if name != "emoji-batch" else ()
    with pytest.raises(ValueError, match=words):
        run_study(command(tmp_path, name, rows, **places))
    assert not (tmp_path / name).exists()


def test_settings_of_a_command_reach_every_cell(tmp_path):
    chosen = chosen_cells(
        command(
            tmp_path,
            data_dir="x",
            steps=400,
            steps_per_evaluation=40,
            seeds=2,
            first_seed=3,
        )
    )
    assert len(chosen) == 10
    for (_, method), recipe in chosen.items():
        assert (recipe.data_dir, recipe.seed) == ("x", 3)
        if method != "untrained":
            assert (recipe.steps, recipe.steps_per_evaluation) == (400, 40)
            assert recipe.repeats == 2


def published_file(folder, *lines):
    path = folder / "published.csv"
    columns = "dataset,loss,method,part,measure,percent,source"
    path.write_text("\n".join([columns, *lines]) + "\n")
    return path


def test_the_table_says_what_was_gained_and_what_was_at_work(
    tmp_path, trained, places
):
    methods = ("gap", "single", "ccp")
    folder = run_study(command(tmp_path, methods=methods, seeds=2, **places))
    known = published_file(
        tmp_path, "folder,c2,ccp,single,map_at_r,26.5,made up"
    )
    table = study_table(folder, known)
    main_table, *_ = table.partition("Steps of each problem")
    lines = [x for x in main_table.splitlines() if x.startswith("| ")]
    rows = [[cell.strip() for cell in x.split("|")[1:-1]] for x in lines[2:]]
    assert [row[1] for row in rows] == ["untrained", *methods]
    results = study_results(folder)["rows"]
    gained = results[3]["differences"]
    assert {*gained} == {"gap", "single", "untrained"}
    for name, other in (("gap", results[1]), ("single", results[2])):
        means = [
            row["parts"]["single"]["map_at_r"]["mean"]
            for row in (results[3], other)
        ]
        assert gained[name]["difference"] == pytest.approx(means[0] - means[1])
        assert gained[name]["low"] < gained[name]["difference"]
    assert results[3]["curve"] == {
        "steps": [10, 20],
        "val_map_at_r": [0.1, 0.2],
    }
    header = [cell.strip() for cell in lines[0].split("|")[1:-1]]
    for name, column in (
        ("gap", "MAP@R against the baseline"),
        ("single", "against its part"),
    ):
        text = f"{name} {100 * gained[name]['difference']:+.2f} ["
        assert rows[3][header.index(column)].startswith(text)
    at_work = "problems 2, each of 10 steps, scored in 2"
    assert rows[3][7:] == [at_work, "2", "1.0"]
    assert "(made up 26.50)" in rows[3][2]
    assert "paired" in table and "neither trained with nor scored" in table
    assert "over the seeds that both have" in table
    assert "1 is a single set of proxies" in table
    assert "| c2 | ccp | 10, 10; 10, 10 |" in table
    assert "| c2 | single | 10" not in table
    for number, problems in ((2, "single"), (3, "ccp")):
        scores = RunDirectory(folder / f"c2.{problems}").read_scores()
        assert results[number]["best_steps"] == [20, 20]
        assert scores["num_problems"] == scores["scored_problem"] == [2, 2]
    assert "num_problems" not in RunDirectory(folder / "c2.gap").read_scores()


def test_a_baseline_with_fewer_seeds_is_paired_with_those(
    tmp_path, trained, places
):
    one = {"methods": ("gap", "single"), "seeds": 1}
    folder = run_study(command(tmp_path, **one, **places))
    assert "for a row with one model over classes alone" in study_table(folder)
    more = {"methods": ("single",), "seeds": 3}
    run_study(command(tmp_path, **more, **places))
    row = study_results(folder)["rows"][-1]
    assert (row["method"], row["models"]) == ("single", 3)
    found = row["differences"]
    # Its own score differs from seed to seed; that of the features does not.
    assert found["gap"]["num_seeds"] == 1
    assert found["untrained"]["num_seeds"] == 3


def test_temperatures_are_compared_with_one_another(tmp_path, trained, places):
    rows = ("c2", "c2-at0.5", "c2-at5", "c2-at20")
    folder = run_study(
        command(tmp_path, "temperature", rows, **places, seeds=1)
    )
    found = {row["row"]: row for row in study_results(folder)["rows"]}
    for row in ("c2-at0.5", "c2-at20"):
        means = [
            found[name]["parts"]["average"]["map_at_r"]["mean"]
            for name in (row, "c2-at5")
        ]
        gained = found[row]["differences"]["c2-at5"]
        assert gained["difference"] == pytest.approx(means[0] - means[1])
        assert f"| c2-at5 {100 * gained['difference']:+.2f} [" in study_table(
            folder
        )
    assert "c2-at5" not in found["c2-at5"]["differences"]


def test_a_record_names_every_commit(tmp_path, trained, places):
    methods = ("gap", "single", "ccp")
    folder = run_study(command(tmp_path, methods=methods, seeds=1, **places))
    for name, commit in (("ccp", "b" * 40), ("gap", "a" * 40)):
        directory = RunDirectory(folder / f"c2.{name}")
        settings = directory.read_settings()
        settings["environment"]["commit"] = commit
        write_json(directory.settings, settings)
    first = study_results(folder)
    assert {"a" * 40, "b" * 40} < {*first["commits"]}
    assert len(first["commits"]) == 3
    # The order in which a disk lists its folders makes no difference.
    (folder / "c2.ccp").rename(folder / "x")
    (folder / "x").rename(folder / "c2.ccp")
    assert study_results(folder) == first


def test_a_design_is_balanced():
    study = STUDIES["screening"]
    levels = [tuple(own.values()) for own in study.factors.values()]
    for first, second in itertools.combinations(range(4), 2):
        counts = Counter((row[first], row[second]) for row in levels)
        assert sorted(counts.values()) == [4] * 4
    for (row, method), recipe in study.cells.items():
        if method == "gsp-zsr":
            found = {name: getattr(recipe, name) for name in study.factors[row]}
            assert found == study.factors[row]


def test_a_design_shows_what_each_factor_adds(tmp_path, trained, places):
    every = STUDIES["screening"].rows
    rows = tuple(row for row in every if row.startswith("c2"))
    folder = run_study(command(tmp_path, "screening", rows, **places))
    found = study_results(folder)
    assert list(found["effects"]) == ["c2"]
    scores = {
        row["row"]: row["parts"]["average"]["map_at_r"]["mean"]
        for row in found["rows"]
        if row["method"] != "untrained"
    }
    levels = STUDIES["screening"].factors
    for factor, effect in found["effects"]["c2"].items():
        low, high = effect["levels"]
        means = {
            level: np.mean(
                [
                    score
                    for row, score in scores.items()
                    if row.startswith("c2-") and levels[row][factor] == level
                ]
            )
            for level in (low, high)
        }
        gained = means[high] - means[low]
        assert effect["effect"] == pytest.approx(gained)
    text = f"{100 * gained:+.2f}"
    assert f"| regularizer weight | 0.1 or 0.5 | {text} |" in study_table(
        folder
    )


def test_an_unfinished_study_has_a_table(tmp_path, trained, places):
    folder = run_study(command(tmp_path, methods=("gap",), seeds=1, **places))
    run_study(command(tmp_path, methods=("gap",), seeds=3, **places))
    member = folder / "c2.gap" / "members" / "seed1" / "scores.json"
    member.unlink()
    table = study_table(folder, "none")
    assert "not finished" in table
    (row,) = [r for r in study_results(folder)["rows"] if r["method"] == "gap"]
    assert row["models"] == 2 and not row["is_finished"]


@pytest.mark.parametrize(
    "line, message",
    [
        ("cub,c3,gap,single,map_at_r,26.5,", "`loss`.*loss='c3'.*line 3"),
        ("cub,c2,gap,all,map_at_r,26.5,", "`part`.*part='all'"),
        ("cub,c2,gap,single,map,26.5,", "`measure`.*measure='map'"),
        ("cub,c2,gap,single,map_at_r,265,", "`percent`.*percent='265'"),
        ("cub,c2,gap,single,map_at_r,much,", "`percent`.*percent='much'"),
        ("cub,c2,gsp,single,map_at_r,27,", "line 3: a second number"),
    ],
)
def test_published_results_that_cannot_be_meant_are_refused(
    tmp_path, line, message
):
    path = published_file(
        tmp_path, "cub,c2,gsp,single,map_at_r,26.5,Table 1", line
    )
    with pytest.raises(SystemExit, match=message):
        tables_main([str(tmp_path), "--published", str(path)])


def test_published_results_need_a_file_with_their_columns(tmp_path):
    path = tmp_path / "published.csv"
    with pytest.raises(SystemExit, match="must be a CSV file"):
        tables_main([str(tmp_path), "--published", str(path)])
    path.write_text("dataset,loss,method,part,percent\n")
    with pytest.raises(SystemExit, match="Received: no measure"):
        tables_main([str(tmp_path), "--published", str(path)])


def test_a_folder_without_results_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="finished run of a protocol"):
        tables_main([str(tmp_path)])
