"""A report of runs, from their folders to the page in a browser."""

import json
import re
import shutil

import pytest

from tests.training import headless_browser as browser
from training import report

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

pytestmark = pytest.mark.slow
_made = {}


@pytest.fixture
def reported(tiny):
    """Two methods, one of them with two seeds, and their report."""
    if not _made:
        page = tiny.folder / "report.html"
        runs = [tiny.run("gap"), tiny.run("gsp"), tiny.run("gsp", 1)]
        report.main([*map(str, runs), "--output", str(page)])
        html = page.read_text()
        text = re.search(r'type="application/json" id="data">(.*?)</', html)
        _made.update(runs=runs, page=page, html=html, data=json.loads(text[1]))
    return _made


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
    assert rows[0].count("gap-<wbr>0") == 1
    assert reported["data"]["runs"] == ["gap-0", "gsp"]


def test_neighbors_are_others_and_every_run_has_weights_and_a_map(reported):
    data = reported["data"]
    for search in data["searches"]:
        for query, answer in search["queries"].items():
            assert int(query) not in answer["neighbors"]
            assert answer["distances"] == sorted(answer["distances"])
    assert [one["shape"] for one in data["searches"]] == [None, [6, 6]]
    assert "Its pooling has no weights" in reported["html"]
    assert all(one["words"].startswith("t-SNE") for one in data["maps"])
    sizes = [len(one["x"]) for one in data["maps"]]
    assert sizes == [len(data["points"])] * 2


def test_only_an_earlier_report_is_replaced(reported, tmp_path):
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    with pytest.raises(SystemExit, match="must be new, or an earlier report"):
        report.main([str(reported["runs"][0]), "--output", str(mine)])
    report._check_target(reported["page"])


def test_a_broken_run_is_reported_with_a_note(tiny, tmp_path, capsys):
    old = '{"recipe": {"dataset": "of old times", "new": 1}}'
    # Average pooling, which has nothing to explain, is quick to report.
    run = tiny.copied(tmp_path, "gap")
    for file, content, words in (
        ("encoder.keras", "?", "No image could be embedded"),
        ("scores.json", "{", "is damaged"),
        ("scores.json", None, "run is not finished"),
        ("history.jsonl", '{"step": 1}\n{', "history.jsonl is damaged"),
        ("settings.json", old, "recipe is of another version"),
    ):
        (run / file).unlink()
        if content is not None:
            (run / file).write_text(content)
        report.main([str(run)])
        assert words in capsys.readouterr().out
        page = (run / "report.html").read_text()
        assert words in page and 'id="settings"' in page
        # Embedding takes time, and reading alone is tested.
        (run / "encoder.keras").unlink(missing_ok=True)
        (run / "scores.json").touch()


def test_broken_images_and_folders_that_are_no_run_are_left_out(
    tiny, tmp_path, capsys
):
    images = tmp_path / "birds"
    shutil.copytree(tiny.images, images)
    files = sorted(images.rglob("*.jpg"))
    files[0].unlink()
    for path in files[1::8]:
        path.write_bytes(b"no image")
    run = tiny.copied(tmp_path, "gap", data_dir=str(images))
    page, other = tmp_path / "page.html", tmp_path / "other"
    report.main([str(other), str(run), "--output", str(page)])
    printed = capsys.readouterr().out
    assert "other is left out: it is not a run" in printed
    assert "unusable images" in printed
    assert 'id="queries"' in page.read_text()
    shutil.rmtree(images)
    report.main([str(run)])
    assert "No image could be embedded" in capsys.readouterr().out
    html = (run / "report.html").read_text()
    assert 'id="curves"' in html and 'id="queries"' not in html
    with pytest.raises(SystemExit, match="at least one run directory"):
        report.main([str(other)])


def test_the_page_works_in_a_browser(reported):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    with browser.opened(1200) as driver:
        first, all_of, wait = browser.finders(driver)
        driver.get(reported["page"].as_uri())
        wait(lambda: first("#map-charts .plot-container"))
        assert driver.title == "Report on 2 methods"
        browser.keep_screenshot(driver, "report-light")
        # Weights over the images of the queries.
        assert len(all_of(".query")) == 6 and all_of("#query-rows canvas")
        first("#overlay").send_keys(Keys.SPACE)
        assert not all_of("#query-rows canvas")
        # A class on the map, and a point's tooltip.
        Select(first("#map-class")).select_by_index(1)
        driver.execute_script("arguments[0].scrollIntoView()", first("#map"))

        def has_tooltip():
            # The chart may still be moving to its position.
            for one in ("#map h2", "#map-charts .points path"):
                ActionChains(driver).move_to_element(first(one)).perform()
            return first("#tooltip").is_displayed()

        wait(has_tooltip)
        browser.keep_screenshot(driver, "report-map")
        # A table as Markdown; the page writes to the clipboard.
        driver.execute_script(
            "navigator.clipboard.writeText = async (text) => {"
            " window.copied = text; };"
        )
        first('[data-copy="t-scores"]').send_keys(Keys.ENTER)
        copied = wait(lambda: driver.execute_script("return window.copied"))
        assert copied.splitlines()[1].startswith("| --- | ---: | ---: |")
        assert copied.splitlines()[2].startswith("| gap-0 | ")
        # Colors follow the system.
        ground = "return getComputedStyle(document.body).backgroundColor"
        light = driver.execute_script(ground)
        browser.use_colors(driver, "dark")
        wait(lambda: driver.execute_script(ground) != light)
        browser.keep_screenshot(driver, "report-dark")
        browser.check_phone(driver, "report-phone")
        assert browser.complaints(driver) == []
