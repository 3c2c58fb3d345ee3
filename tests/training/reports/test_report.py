"""A report of runs, from their folders to the page in a browser."""

import json
import re
import shutil

import keras
import pytest

from tests.training.headless_browser import (
    complaints,
    keep_screenshot,
    opened_browser,
    resize,
    skip_without_browser,
    use_colors,
)
from tests.training.reports.tiny_runs import image_folder, tiny_run
from training import report
from training.reports import report_page

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
pytest.importorskip("plotly")
pytest.importorskip("jinja2")

HOSTILE = "</script><script>document.title='broken'</script>"


class Reported:
    """Two methods, one of them with two seeds, and their report."""

    def __init__(self, folder):
        self.images = image_folder(folder / "birds")
        hostile = self.images / "class <7>"
        # A class may be called anything but a path.
        hostile.rename(self.images / HOSTILE.replace("/", "∕"))
        runs = folder / "runs"
        self.runs = [
            tiny_run(runs / "gap", self.images, "gap"),
            tiny_run(runs / "gsp-0", self.images, "gsp"),
            tiny_run(runs / "gsp-1", self.images, "gsp", seed=1),
        ]
        self.page = folder / "report.html"
        report.main(
            [
                *map(str, self.runs),
                *("--output", str(self.page)),
                *("--map", "tsne"),
            ]
        )
        self.html = self.page.read_text()
        text = re.search(
            r'<script type="application/json" id="data">(.*?)</script>',
            self.html,
            re.DOTALL,
        )
        self.data = json.loads(text[1])


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("reported")
        patch.setenv("KERAS_GSP_CACHE", str(folder / "cache"))
        yield Reported(folder)


def test_a_page_asks_the_network_for_nothing(reported):
    own = reported.html.replace("http://www.w3.org", "")
    assert "default-src 'none'" in own
    # What plotly.js mentions is held back by that policy.
    before_plotly = own[: own.index('id="data"')]
    assert "http:" not in before_plotly and "https:" not in before_plotly
    assert 'src="data:' in before_plotly


def test_runs_of_several_seeds_are_one_method(reported):
    table = re.search(
        r'<table id="t-scores">.*?</table>', reported.html, re.DOTALL
    )
    assert "gsp-0 and 1 more" in table[0]
    assert len(reported.data["curves"]) == 3
    assert reported.data["runs"] == ["gap", "gsp-0"]


def test_scores_are_those_of_the_embeddings(reported):
    from training.recipes.data import read_recipe
    from training.runs.run_directory import RunDirectory
    from training.runs.scoring import load_encoder, score

    run = RunDirectory(reported.runs[0])
    recipe = run.read_recipe()
    test = read_recipe(recipe).test
    expected = score(load_encoder(run), recipe, test)
    row = re.search(
        r"</span>gap</th><td>test</td>\s*<td[^>]*>([\d.]+)</td>", reported.html
    )
    assert float(row[1]) == pytest.approx(100 * expected["map_at_r"], abs=0.051)


def test_the_best_of_the_curve_has_its_row_and_reason(reported):
    row = re.search(
        r"</span>gap</th><td>validation</td>\s*<td[^>]*>([\d.]+)</td>",
        reported.html,
    )
    assert row[1] == "10.0"
    assert 'id="why-validation-differs"' in reported.html


def test_notes_say_what_differs_from_what_is_written(reported):
    assert "scores.json has a MAP@R of 0.5000" in reported.html
    assert "Its pooling has no weights" in reported.html


def test_prototypes_add_up_to_the_similarity(reported):
    search = reported.data["searches"][1]
    answer = next(iter(search["queries"].values()))
    assert search["shape"] == [6, 6]
    for why in answer["why"]:
        # Five prototypes, all of them named.
        assert sum(why["shares"]) == pytest.approx(why["similarity"], abs=1e-3)
    assert reported.data["searches"][0]["shape"] is None


def test_a_query_is_not_among_its_neighbors(reported):
    for search in reported.data["searches"]:
        for query, answer in search["queries"].items():
            assert int(query) not in answer["neighbors"]
            assert answer["distances"] == sorted(answer["distances"])


def test_maps_lie_side_by_side(reported):
    assert [one["method"] for one in reported.data["maps"]] == ["pca", "tsne"]
    for one in reported.data["maps"]:
        assert len(one["layouts"]) == 2
        for layout in one["layouts"]:
            assert len(layout["x"]) == len(reported.data["points"])


def test_an_earlier_report_is_replaced_and_nothing_else(reported, tmp_path):
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    with pytest.raises(SystemExit, match="must be new, or an earlier report"):
        report.main(
            [str(reported.runs[0]), "--output", str(tmp_path / "mine.html")]
        )
    report_page._check_target(reported.page)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda run: (run / "scores.json").unlink(), "run is not finished"),
        (lambda run: (run / "encoder.keras").unlink(), "no encoder.keras"),
        (lambda run: (run / "encoder.keras").write_text("?"), "No image could"),
        (lambda run: (run / "scores.json").write_text("{"), "cannot be read"),
        (
            lambda run: (run / "history.jsonl").write_text('{"step": 1}\n{'),
            "1 of 2 lines of history.jsonl",
        ),
        (
            lambda run: (run / "settings.json").write_text(
                '{"recipe": {"dataset": "of old times", "new": 1}}'
            ),
            "recipe is of another version",
        ),
    ],
)
def test_a_broken_run_gives_a_sentence_and_the_rest(
    reported, tmp_path, capsys, break_it, words
):
    run = tmp_path / "broken"
    shutil.copytree(reported.runs[1], run)
    break_it(run)
    if words != "No image could":
        # Reading is what is tested here; nothing need be embedded for it.
        (run / "encoder.keras").unlink(missing_ok=True)
    report.main([str(run)])
    assert words in capsys.readouterr().out
    page = (run / "report.html").read_text()
    assert words in page and 'id="settings"' in page


def with_data(run, copy, **settings):
    """A copy of a run that looks for its images elsewhere."""
    shutil.copytree(run, copy)
    found = json.loads((copy / "settings.json").read_text())
    found["recipe"] |= settings
    (copy / "settings.json").write_text(json.dumps(found))
    return copy


def test_broken_images_are_left_out_and_old_recipes_read(
    reported, tmp_path, capsys
):
    images = tmp_path / "birds"
    shutil.copytree(reported.images, images)
    files = sorted(images.rglob("*.jpg"))
    files[0].unlink()
    for path in files[1::8]:
        path.write_bytes(b"no image")
    run = with_data(
        reported.runs[1],
        tmp_path / "run",
        data_dir=str(images),
        a_setting_of_another_version=1,
    )
    report.main([str(run)])
    said = capsys.readouterr().out
    assert "unusable images" in said
    assert "only the settings of its data" in said
    assert 'id="queries"' in (run / "report.html").read_text()


@pytest.mark.slow
def test_a_list_with_missing_images_says_so(reported, tmp_path, capsys):
    rows = ["path,label"]
    rows += [f"{tmp_path}/{i}.jpg,class{i // 2}" for i in range(8)]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    run = with_data(
        reported.runs[1],
        tmp_path / "run",
        dataset="csv",
        data_dir=str(tmp_path / "list.csv"),
    )
    report.main([str(run)])
    assert "8 of 8 missing" in capsys.readouterr().out
    assert 'id="curves"' in (run / "report.html").read_text()
    found = sorted(reported.images.rglob("*.jpg"))
    rows = ["path,label", f"{tmp_path}/gone.jpg,{found[0].parent.name}"]
    rows += [f"{path},{path.parent.name}" for path in found]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    report.main([str(run)])
    assert "1 unusable images of list" in capsys.readouterr().out
    assert 'id="queries"' in (run / "report.html").read_text()


def test_a_foreign_folder_is_named_and_the_others_reported(
    reported, tmp_path, capsys
):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    page = tmp_path / "page.html"
    runs = [str(foreign), str(reported.runs[0])]
    report.main([*runs, "--output", str(page)])
    assert "foreign is left out: it is not a run" in capsys.readouterr().out
    assert page.exists()
    with pytest.raises(SystemExit, match="at least one run directory"):
        report.main([str(foreign)])


def test_data_that_is_gone_leaves_curves_and_settings(
    reported, tmp_path, capsys
):
    gone = str(tmp_path / "gone")
    run = with_data(reported.runs[1], tmp_path / "run", data_dir=gone)
    report.main([str(run)])
    assert "No image could be embedded" in capsys.readouterr().out
    page = (run / "report.html").read_text()
    assert 'id="curves"' in page and 'id="queries"' not in page


@pytest.mark.slow
def test_the_page_works_in_a_browser(reported):
    skip_without_browser()
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait

    with opened_browser() as driver:

        def first(selector):
            return driver.find_element(By.CSS_SELECTOR, selector)

        def wait(condition):
            # What is drawn anew while it is looked at is looked at again.
            return WebDriverWait(
                driver, 30, ignored_exceptions=[StaleElementReferenceException]
            ).until(lambda _: condition())

        driver.get(reported.page.as_uri())
        wait(lambda: first("#map-charts .plot-container"))
        assert driver.title == "gap · gsp-0 and 1 more"
        keep_screenshot(driver, "report-light")

        # Sorting, by keyboard: scores go down, the column says so.
        head = first("#t-classes th:nth-child(3) button")
        head.send_keys(Keys.ENTER)
        cells = [
            float(cell.text)
            for cell in driver.find_elements(
                By.CSS_SELECTOR, "#t-classes tbody td:nth-child(3)"
            )
        ]
        assert cells == sorted(cells)
        assert first("#t-classes th[aria-sort]").get_attribute("aria-sort")

        # A query list, weights over its images, and an explanation.
        lists = Select(first("#query-list"))
        assert len(lists.options) == 6
        lists.select_by_visible_text("gsp-0 ahead of gap")
        assert not driver.find_elements(By.CSS_SELECTOR, "#query-rows canvas")
        first("#overlay").send_keys(Keys.SPACE)
        assert driver.find_elements(By.CSS_SELECTOR, "#query-rows canvas")
        keep_screenshot(driver, "report-queries")
        first(".neighbor:enabled").send_keys(Keys.ENTER)
        assert first("#why").is_displayed()
        before = driver.execute_script(
            "return document.querySelector('#why canvas').toDataURL()"
        )
        driver.find_elements(By.CSS_SELECTOR, "#why input")[2].click()
        after = driver.execute_script(
            "return document.querySelector('#why canvas').toDataURL()"
        )
        assert before != after
        first("#why").send_keys(Keys.ESCAPE)
        wait(lambda: not first("#why").is_displayed())

        # A class on the map, and its images below.
        classes = Select(first("#map-class"))
        classes.select_by_index(1)
        assert len(driver.find_elements(By.CSS_SELECTOR, ".members .tile")) == 4
        Select(first("#map-method")).select_by_visible_text("t-SNE")
        wait(lambda: "t-SNE" in first("#map-charts h3").text)
        driver.execute_script("arguments[0].scrollIntoView()", first("#map"))

        def is_told():
            # The chart may still be on its way to where its points belong.
            webdriver_move(driver, first("#map h2, #map h3"))
            webdriver_move(driver, first("#map-charts .points path"))
            return first("#tooltip").is_displayed()

        wait(is_told)
        keep_screenshot(driver, "report-map")

        # A table as Markdown; the clipboard is asked for by the page itself.
        driver.execute_script(
            "navigator.clipboard.writeText = async (text) => {"
            " window.copied = text; };"
        )
        first('[data-copy="t-scores"]').send_keys(Keys.ENTER)
        copied = wait(lambda: driver.execute_script("return window.copied"))
        assert copied.splitlines()[1].startswith("| --- | --- | ---: |")
        assert copied.splitlines()[2].startswith("| gap | test | ")

        # Colors: as the system, then as chosen.
        def ground():
            return driver.execute_script(
                "return getComputedStyle(document.body).backgroundColor"
            )

        light = ground()
        use_colors(driver, "dark")
        wait(lambda: ground() != light)
        keep_screenshot(driver, "report-dark")
        first("#theme").send_keys(Keys.ENTER)
        assert ground() == light

        # A phone: nothing is wider than the screen.
        resize(driver, 390, 844)
        for name in ("overview", "queries", "classes", "duplicates"):
            section = first(f"#{name}")
            driver.execute_script("arguments[0].scrollIntoView()", section)
            keep_screenshot(driver, f"report-phone-{name}")
        assert driver.execute_script(
            "return document.documentElement.scrollWidth <= innerWidth"
        )
        assert complaints(driver) == []


def webdriver_move(driver, element):
    """Points at an element."""
    from selenium.webdriver import ActionChains

    ActionChains(driver).move_to_element(element).perform()
