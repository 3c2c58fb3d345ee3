"""A study is a table of recipes; its finished cells stay as they are."""

import pytest

import training.protocols.run_protocol as protocol
from training import study
from training.protocols.collections import summary
from training.recipes import published
from training.recipes.named import named_recipes
from training.recipes.recipe import Recipe
from training.recipes.setting import LARGE, SMALL
from training.recipes.studies import STUDIES
from training.runs.run_directory import write_json
from training.study import StudyCommand, chosen_cells, run_study
from training.tables import main as tables_main
from training.tables import study_table


@pytest.fixture
def cells(monkeypatch):
    """Stands in for protocols; returns what was run."""
    done = []

    def run_protocol(recipe, splits, directory):
        done.append(directory.path.name)
        rates = {
            "map_at_r": 0.25,
            "precision_at_r": 0.4,
            "precision_at_1": 0.625,
        }
        scores = {
            "protocol": recipe.protocol,
            "selected_on": "held-out folds",
            "num_models": 4,
            "num_collections": 1,
            "seconds": 90.0,
            "average": summary([rates], 128),
            "concatenated": summary([rates, rates], 512),
        }
        write_json(directory.scores, scores)
        return scores

    monkeypatch.setattr(protocol, "run_protocol", run_protocol)
    monkeypatch.setattr(study, "_splits", lambda recipe: object())
    return done


def command(tmp_path, **settings):
    return StudyCommand(
        study="birds50", loss=("c2",), runs=tmp_path, **settings
    )


def test_every_study_names_losses_and_methods():
    for name, table in STUDIES.items():
        assert table.cells, name
        for (loss, method), recipe in table.cells.items():
            assert recipe.loss == loss
            # These two bring validation classes of their own.
            is_single = name in ("collage", "glyphs")
            assert recipe.protocol == ("single" if is_single else "fair")
            assert (recipe.ccp == "on") == (method == "ccp")


def test_finished_cells_are_not_trained_again(tmp_path, cells):
    run_study(command(tmp_path, method=("gap",)))
    run_study(command(tmp_path, method=("gap", "gsp")))
    assert cells == ["c2.gap", "c2.gsp"]


def test_cells_of_another_recipe_are_refused(tmp_path, cells):
    run_study(command(tmp_path, method=("gap",)))
    with pytest.raises(ValueError, match="another steps"):
        run_study(command(tmp_path, method=("gap",), steps=50))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"study": "birds"}, "study='birds'"),
        ({"study": "cub", "loss": ("c3",)}, "loss='c3'"),
        ({"study": "cub", "method": ("gas",)}, "method='gas'"),
    ],
)
def test_unknown_words_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        chosen_cells(StudyCommand(**settings))


def test_settings_of_a_command_reach_every_cell(tmp_path):
    chosen = chosen_cells(
        command(tmp_path, data_dir="x", steps=20, repeats=2, seed=3)
    )
    assert len(chosen) == 5
    for recipe in chosen.values():
        assert (recipe.data_dir, recipe.steps, recipe.seed) == ("x", 20, 3)
        assert recipe.repeats == 2 and recipe.steps_per_evaluation == 20


def published_file(folder, *lines):
    path = folder / "published.csv"
    columns = "dataset,loss,method,part,measure,percent,source"
    path.write_text("\n".join([columns, *lines]) + "\n")
    return path


def test_the_table_has_a_row_per_cell(tmp_path, cells):
    folder = run_study(command(tmp_path, method=("gap", "xml", "ccp")))
    known = published_file(
        tmp_path, "folder,c2,xml,average,map_at_r,26.5,made up"
    )
    table = study_table(folder, known)
    rows = [line for line in table.splitlines() if line.startswith("| c2")]
    assert [row.split(" | ")[1] for row in rows] == ["gap", "xml", "ccp"]
    assert "| c2 | gap | 62.50 | 40.00 | 25.00 | 62.50 ± 0.00" in rows[0]
    assert "25.00 (paper 26.50)" in rows[1]
    assert "1.5 min" in rows[0]
    assert "weights chosen on held-out folds" in table


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


def test_published_numbers_are_recipe_fields_with_a_source():
    groups = [
        published.SHARED,
        published.CONVENTIONAL,
        *published.LOSSES.values(),
        *(settings for _, settings in published.METHODS.values()),
    ]
    fields = Recipe.__dataclass_fields__
    for setting in (one for group in groups for one in group):
        assert setting.source
        assert set(setting.values) <= set(fields)


@pytest.mark.parametrize("loss", published.LOSSES)
def test_a_loss_has_the_same_numbers_set_on_every_data_set(loss):
    named = {
        dataset: sorted(
            name
            for setting in published.LOSSES[loss]
            if dataset in setting.datasets
            for name in setting.values
        )
        for dataset in SMALL + LARGE
    }
    assert named["cub"]
    assert all(names == named["cub"] for names in named.values())


def test_large_data_sets_have_their_own_settings():
    recipes = named_recipes()
    assert recipes["cub-gsp-zsr"].num_prototypes == 64
    assert recipes["sop-gsp-zsr"].num_prototypes == 128
    assert recipes["cub"].memory_capacity == 800
    assert recipes["inshop-xbm"].memory_capacity == 12_800
    assert recipes["cars-ccp"].proxies_per_class == 8
    assert recipes["sop-ccp"].proxies_per_class == 4
    assert recipes["cub-ccp"].normalization == "ball"
    assert recipes["cub-conventional"].embedding_size == 512
    assert recipes["cub-conventional"].protocol == "conventional"
    assert recipes["cub"].regularizer == "none"


def test_pair_losses_have_margins_of_their_data_set():
    recipes = named_recipes()
    margins = {
        name: recipes[name].negative_margin
        for name in ("cub", "cars-gsp", "sop-ccp", "inshop", "cub-conventional")
    }
    assert margins == {
        "cub": 0.3841,
        "cars-gsp": 0.5409,
        "sop-ccp": 0.5130,
        "inshop": 0.5130,
        "cub-conventional": 1.0,
    }
    assert recipes["cars"].positive_margin == 0.2652
    assert recipes["cars-conventional"].positive_margin == 0.0
    assert recipes["cub"].triplet_margin == 0.0961
    soft_triple = published.published_recipe("cars", loss="soft-triple")
    assert soft_triple.proxies_per_class == 10
    assert soft_triple.soft_triple_gamma == pytest.approx(1 / 19.18)
