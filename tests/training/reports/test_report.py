"""A report of runs, from their folders to the page in a browser."""

import json
import re
import shutil

import pytest

from tests.training import headless_browser as browser
from training import report

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

_made = {}


@pytest.fixture
def reported(tiny):
    """Two methods, one of them with two seeds, and their report."""
    if not _made:
        page = tiny.folder / "report.html"
        runs = [tiny.run("gap"), tiny.run("gsp"), tiny.run("gsp", 1)]
        report.main(
            [*map(str, runs), "--output", str(page), *("--map", "tsne")]
        )
        html = page.read_text()
        text = re.search(r'type="application/json" id="data">(.*?)</', html)
        _made.update(runs=runs, page=page, html=html, data=json.loads(text[1]))
    return _made


def copied_run(tiny, tmp_path, **settings):
    """A copy of a run that has other settings."""
    run = tmp_path / "run"
    # Average pooling, which has nothing to explain, is quick to report.
    shutil.copytree(tiny.run("gap"), run)
    found = json.loads((run / "settings.json").read_text())
    found["recipe"] |= settings
    (run / "settings.json").write_text(json.dumps(found))
    return run


def test_a_page_needs_no_network_and_runs_no_class_name(reported, tiny):
    html = reported["html"]
    assert "default-src 'none'" in html
    # That policy also stops the addresses that plotly.js mentions.
    before_plotly = html[: html.index('id="data"')]
    before_plotly = before_plotly.replace("http://www.w3.org", "")
    assert "http:" not in before_plotly and "https:" not in before_plotly
    pictures = reported["data"]["pictures"].values()
    assert {one.split(",")[0] for one in pictures} == {"data:image/webp;base64"}
    assert tiny.hostile in reported["data"]["classes"]
    assert tiny.hostile not in html


def test_scores_match_the_encoder(reported):
    from training.recipes.data import read_recipe
    from training.runs.run_directory import RunDirectory
    from training.runs.scoring import load_encoder, score

    run = RunDirectory(reported["runs"][0])
    recipe = run.read_recipe()
    expected = score(load_encoder(run), recipe, read_recipe(recipe).test)
    table = reported["html"].split('id="t-scores"')[1]
    found = re.search(r"gap-<wbr>0</th>\s*<td[^>]*>([\d.]+)</td>", table)[1]
    assert float(found) == pytest.approx(100 * expected["map_at_r"], abs=0.051)
    assert "scores.json has a MAP@R of 0.5000" in reported["html"]


def test_it_begins_with_the_verdict_and_the_gain_over_the_baseline(reported):
    html = reported["html"]
    first = re.search(r'id="h-overview" class="lead">(.*?)</h2>', html)[1]
    assert "the raw features were not scored" in first
    second = html[html.index(first) :]
    assert "the same network with average pooling (gap-<wbr>0), gsp" in second
    assert html.index('id="t-compared"') < html.index('id="queries"')
    rows = re.findall(r'<tr><th scope="row">.*?</tr>', html, re.DOTALL)
    assert rows[0].count("gap-<wbr>0") == 1 and "pooling gsp" in rows[0]
    assert reported["data"]["runs"] == ["gap-0", "gsp"]


def test_contributions_of_prototypes_sum_to_the_similarity(reported):
    without, search = reported["data"]["searches"]
    answer = next(iter(search["queries"].values()))
    assert search["shape"] == [6, 6]
    for why in answer["why"]:
        # All five prototypes are named.
        assert sum(why["shares"]) == pytest.approx(why["similarity"], abs=1e-3)
    assert without["shape"] is None
    assert "Its pooling has no weights" in reported["html"]


def test_neighbors_are_others_and_every_run_has_a_map_of_each_kind(reported):
    data = reported["data"]
    for search in data["searches"]:
        for query, answer in search["queries"].items():
            assert int(query) not in answer["neighbors"]
            assert answer["distances"] == sorted(answer["distances"])
    assert [one["method"] for one in data["maps"]] == ["tsne", "pca"]
    for one in data["maps"]:
        sizes = [len(layout["x"]) for layout in one["layouts"]]
        assert sizes == [len(data["points"])] * 2


def test_only_an_earlier_report_is_replaced(reported, tmp_path):
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    with pytest.raises(SystemExit, match="must be new, or an earlier report"):
        report.main([str(reported["runs"][0]), "--output", str(mine)])
    report._check_target(reported["page"])


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("scores.json", None, "run is not finished"),
        ("scores.json", "{", "is damaged"),
        ("encoder.keras", None, "no encoder.keras"),
        ("encoder.keras", "?", "No image could"),
        ("history.jsonl", '{"step": 1}\n{', "history.jsonl is damaged"),
        (
            "settings.json",
            '{"recipe": {"dataset": "of old times", "new": 1}}',
            "recipe is of another version",
        ),
    ],
)
def test_a_broken_run_is_reported_with_a_note(
    tiny, tmp_path, capsys, file, content, words
):
    run = copied_run(tiny, tmp_path)
    if words != "No image could":
        # Embedding takes time, and reading alone is tested.
        (run / "encoder.keras").unlink()
    if content is not None:
        (run / file).write_text(content)
    else:
        (run / file).unlink(missing_ok=True)
    report.main([str(run)])
    assert words in capsys.readouterr().out
    page = (run / "report.html").read_text()
    assert words in page and 'id="settings"' in page


def test_broken_images_are_left_out(tiny, tmp_path, capsys):
    images = tmp_path / "birds"
    shutil.copytree(tiny.images, images)
    files = sorted(images.rglob("*.jpg"))
    files[0].unlink()
    for path in files[1::8]:
        path.write_bytes(b"no image")
    run = copied_run(tiny, tmp_path, data_dir=str(images))
    report.main([str(run)])
    printed = capsys.readouterr().out
    assert "unusable images" in printed
    assert 'id="queries"' in (run / "report.html").read_text()


def test_a_folder_that_is_no_run_is_named(tiny, tmp_path, capsys):
    run = copied_run(tiny, tmp_path, data_dir=str(tmp_path / "gone"))
    page = tmp_path / "page.html"
    other = tmp_path / "other"
    report.main([str(other), str(run), "--output", str(page)])
    printed = capsys.readouterr().out
    assert "other is left out: it is not a run" in printed
    # The data set is missing too; curves and settings are shown.
    assert "No image could be embedded" in printed
    html = page.read_text()
    assert 'id="curves"' in html and 'id="queries"' not in html
    with pytest.raises(SystemExit, match="at least one run directory"):
        report.main([str(other)])


@pytest.mark.slow
def test_the_page_works_in_a_browser(reported):
    with browser.opened() as driver:
        first, _, wait = browser.finders(driver)
        driver.get(reported["page"].as_uri())
        wait(lambda: first("#map-charts .plot-container"))
        assert driver.title == "Report on 2 methods"
        browser.keep_screenshot(driver, "report-light")
        _sort_a_table(driver)
        _explain_a_neighbor(driver)
        _look_at_the_map(driver)
        _copy_a_table(driver)
        _change_colors(driver)
        browser.check_phone(driver, "report-phone")
        assert browser.complaints(driver) == []


def _sort_a_table(driver):
    """A table is sorted by keyboard."""
    from selenium.webdriver.common.keys import Keys

    first, all_of, _ = browser.finders(driver)
    first("#t-classes th:nth-child(3) button").send_keys(Keys.ENTER)
    cells = all_of("#t-classes tbody td:nth-child(3)")
    scores = [float(cell.text) for cell in cells]
    assert scores == sorted(scores)
    assert first("#t-classes th[aria-sort]").get_attribute("aria-sort")


def _explain_a_neighbor(driver):
    """A list of queries, weights over its images, an explanation."""
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    first, all_of, wait = browser.finders(driver)
    lists = Select(first("#query-list"))
    assert len(all_of(".query")) == 6 and len(lists.options) == 5
    lists.select_by_visible_text("largest gain over gap-0")
    assert all_of("#query-rows canvas")
    first("#overlay").send_keys(Keys.SPACE)
    assert not all_of("#query-rows canvas")
    browser.keep_screenshot(driver, "report-queries", "#queries")
    first(".neighbor:enabled").send_keys(Keys.ENTER)
    assert first("#why").is_displayed()
    drawn = "return document.querySelector('#why canvas').toDataURL()"
    before = driver.execute_script(drawn)
    all_of("#why input")[2].click()
    assert before != driver.execute_script(drawn)
    first("#why").send_keys(Keys.ESCAPE)
    wait(lambda: not first("#why").is_displayed())


def _look_at_the_map(driver):
    """A class on the map, its images below, and a point's tooltip."""
    from selenium.webdriver.support.ui import Select

    first, all_of, wait = browser.finders(driver)
    Select(first("#map-class")).select_by_index(1)
    assert len(all_of(".members .tile")) == 4
    Select(first("#map-method")).select_by_visible_text("t-SNE")
    wait(lambda: "t-SNE" in first("#map-charts h3").text)
    driver.execute_script("arguments[0].scrollIntoView()", first("#map"))

    def has_tooltip():
        # The chart may still be moving to its place.
        browser.point_at(driver, first("#map h2, #map h3"))
        browser.point_at(driver, first("#map-charts .points path"))
        return first("#tooltip").is_displayed()

    wait(has_tooltip)
    browser.keep_screenshot(driver, "report-map")


def _copy_a_table(driver):
    """A table as Markdown; the page writes to the clipboard."""
    from selenium.webdriver.common.keys import Keys

    first, _, wait = browser.finders(driver)
    driver.execute_script(
        "navigator.clipboard.writeText = async (text) => {"
        " window.copied = text; };"
    )
    first('[data-copy="t-scores"]').send_keys(Keys.ENTER)
    copied = wait(lambda: driver.execute_script("return window.copied"))
    assert copied.splitlines()[1].startswith("| --- | ---: | ---: |")
    assert copied.splitlines()[2].startswith("| gap-0 | ")


def _change_colors(driver):
    """Colors follow the system, then the button."""
    from selenium.webdriver.common.keys import Keys

    first, _, wait = browser.finders(driver)
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = driver.execute_script(ground)
    browser.use_colors(driver, "dark")
    wait(lambda: driver.execute_script(ground) != light)
    browser.keep_screenshot(driver, "report-dark", "#overview")
    first("#theme").send_keys(Keys.ENTER)
    assert driver.execute_script(ground) == light
