"""The page that searches a collection, in a browser at two widths."""

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from tests.training import headless_browser as browser
from training import browse

gradio = pytest.importorskip("gradio")
from training.reports import browse_page  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def retriever(tmp_path_factory):
    """Twelve photographs without labels, in one flat folder."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(12):
        pixels = rng.integers(0, 256, (40, 60, 3), "uint8")
        Image.fromarray(pixels).save(folder / f"{number}.png")
    encoder = gsp.models.build_encoder(
        keras.Sequential(
            [keras.Input((24, 24, 3)), keras.layers.Conv2D(6, 3, strides=4)]
        ),
        embedding_size=None,
        pooling=gsp.layers.GeneralizedSumPooling(5),
        preprocessing=gsp.data.Preprocessing(24, 24),
    )
    return gsp.retrieval.Retriever.from_folder(folder, encoder)


def test_the_page_searches_shows_why_and_fits_a_phone(retriever):
    _, address, _ = browse_page.page(retriever).launch(
        server_name="127.0.0.1", prevent_thread_lock=True
    )
    try:
        with browser.opened(1200) as driver:
            first, all_of, wait = browser.finders(driver)
            driver.get(address)
            wait(lambda: all_of("input[type=file]"))
            file = str(retriever.folder / "3.png")
            first("input[type=file]").send_keys(file)
            wait(lambda: all_of("img[src*='3.png']"))
            first("button.primary").click()
            wait(lambda: len(all_of(".thumbnail-item")) >= 12)
            wait(lambda: "1: 0.000" in driver.page_source)
            browser.keep_screenshot(driver, "browse-search")
            all_of(".thumbnail-item")[1].click()
            wait(lambda: any(x.size["width"] > 500 for x in all_of("img")))
            browser.keep_screenshot(driver, "browse")
            browser.check_phone(driver, "browse-phone")
    finally:
        gradio.close_all()


def test_a_file_that_is_gone_is_gray(retriever):
    small = browse_page.thumbnail(retriever.folder / "none.png")
    assert np.unique(np.asarray(small)).tolist() == [200]
    small = browse_page.thumbnail(retriever.folder / "3.png")
    assert small.size == (60, 40)


def test_a_run_is_searched_by_its_test_images(tiny, tmp_path):
    from training.recipes.data import read_recipe
    from training.runs.run_directory import RunDirectory

    run = tiny.run("gap")
    command = browse.BrowseCommand(run)
    one = browse._retriever(command, tmp_path)
    assert len(one) == len(read_recipe(RunDirectory(run).read_recipe()).test)
    found = one.search(one.folder / str(one.index.ids()[0]), k=1)
    assert found.ids[0, 0] == one.index.ids()[0]
