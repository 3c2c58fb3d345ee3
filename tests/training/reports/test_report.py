"""A report of runs, from their folders to the page in a browser."""

import re
import shutil

import pytest

from tests.training import headless_browser as browser
from training import report

pytest.importorskip("jinja2")

pytestmark = pytest.mark.slow
_made = {}


@pytest.fixture
def reported(tiny):
    """Three runs and their report."""
    if not _made:
        page = tiny.folder / "report.html"
        runs = [tiny.run("gap"), tiny.run("gsp"), tiny.run("gsp", 1)]
        report.main([*map(str, runs), "--output", str(page)])
        _made.update(runs=runs, page=page, html=page.read_text())
    return _made


def test_a_page_needs_no_network_and_runs_no_class_name(reported, tiny):
    html = reported["html"]
    assert "default-src 'none'" in html
    assert "http:" not in html and "https:" not in html
    assert "<script" not in html and tiny.hostile not in html
    assert len(html) < 10e6


def test_scores_that_the_encoder_does_not_reach_are_named(reported):
    from training.recipes.data import read_recipe
    from training.runs.run_directory import RunDirectory
    from training.runs.scoring import load_encoder, score

    run = RunDirectory(reported["runs"][0])
    recipe = run.read_recipe()
    sides = read_recipe(recipe).scored()
    now = score(load_encoder(run), recipe, sides)["map_at_r"]
    assert "gap-0</th><td>50.0 [40.0, 60.0]</td>" in reported["html"]
    words = f"has a MAP@R of 0.5000, the encoder now reaches {now:.4f}"
    assert words in reported["html"]


def test_it_begins_with_the_verdict_and_the_gain_over_the_baseline(reported):
    html = reported["html"]
    lead = re.search(r'id="lead">(.*?)</p>', html)[1]
    assert "the raw features were not scored" in lead
    assert "gsp-0 differs from gap-0 by" in html
    order = [html.index(f"<h2>{name}") for name in ("Scores", "Right first")]
    assert order == sorted(order)
    # Neighbors of two runs, good and bad queries, and the curves.
    assert html.count('<img class="wide"') == 2 * 2 + 1


def test_only_an_earlier_report_is_replaced(reported, tmp_path):
    mine = tmp_path / "mine.html"
    mine.write_text("<p>mine</p>")
    with pytest.raises(SystemExit, match="must be new, or an earlier report"):
        report.main([str(reported["runs"][0]), "--output", str(mine)])
    assert mine.read_text() == "<p>mine</p>"


def test_an_unfinished_run_and_broken_images_are_reported_with_a_note(
    tiny, tmp_path, capsys
):
    images = tmp_path / "birds"
    shutil.copytree(tiny.images, images)
    files = sorted(images.rglob("*.jpg"))
    files[0].unlink()
    for path in files[1::8]:
        path.write_bytes(b"no image")
    run = tiny.copied(tmp_path, "gap", data_dir=str(images))
    (run / "scores.json").unlink()
    report.main([str(run)])
    printed, page = capsys.readouterr().out, (run / "report.html").read_text()
    for note in ("unusable images", "run is not finished"):
        assert note in printed and note in page
    assert "<h2>Right first" in page
    # Settings of another version: nothing can be embedded.
    (run / "settings.json").write_text('{"recipe": {"new": 1}}')
    report.main([str(run)])
    page = (run / "report.html").read_text()
    assert "No image could be embedded" in page and "<h2>Settings" in page


def test_the_page_fits_a_wide_and_a_narrow_screen(reported):
    with browser.opened(1200) as driver:
        driver.get(reported["page"].as_uri())
        assert driver.title == "Report on gap-0, gsp-0, gsp-1"
        browser.keep_screenshot(driver, "report")
        browser.check_phone(driver, "report-phone")
        assert browser.complaints(driver) == []
