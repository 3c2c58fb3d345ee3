"""The page that searches an export: its answers, its limits, its look."""

import io
import json
import struct
import threading
import zlib

import keras
import numpy as np
import pytest
from PIL import Image

from tests.training.headless_browser import (
    complaints,
    keep_screenshot,
    opened_browser,
    resize,
    skip_without_browser,
    use_colors,
)
from tests.training.reports.tiny_runs import image_folder, tiny_run
from training import browse, export

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)
pytest.importorskip("starlette")
pytest.importorskip("httpx2")


class Served:
    """An export of an untrained encoder, and a client of its page."""

    def __init__(self, folder):
        from starlette.testclient import TestClient

        from training.browsing.export_search import ExportSearch
        from training.browsing.search_page import search_app

        self.images = image_folder(folder / "birds", classes=10)
        run = tiny_run(folder / "runs" / "tiny", self.images)
        settings = json.loads((run / "settings.json").read_text())
        settings["recipe"]["train_classes"] = 8
        (run / "settings.json").write_text(json.dumps(settings))
        self.model = folder / "model"
        export.main([str(run), "--output", str(self.model), "--neighbors", "3"])
        self.search = ExportSearch(self.model)
        self.app = search_app(self.search, ("127.0.0.1",))
        self.client = TestClient(self.app, base_url="http://127.0.0.1")

    def file(self, place):
        with open(self.search.ids[place], "rb") as file:
            return file.read()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("served")
        patch.setenv("KERAS_GSP_CACHE", str(folder / "cache"))
        yield Served(folder)


def test_neighbors_are_those_of_the_export(served):
    contents = served.file(5)
    exported = served.search._call("search_exact", image_bytes=[contents])
    answer = served.client.post("/search?k=3", content=contents).json()
    found = answer["neighbors"]
    assert [one["name"] for one in found] == [
        id_.decode() for id_ in exported["ids"][0]
    ]
    np.testing.assert_allclose(
        [one["distance"] for one in found],
        exported["distances"][0],
        atol=1e-4,  # of a square root near zero
    )


def test_more_neighbors_than_the_export_returns(served):
    answer = served.client.post("/search?k=7", content=served.file(0)).json()
    assert len(answer["neighbors"]) == 7
    distances = [one["distance"] for one in answer["neighbors"]]
    assert distances == sorted(distances)


def test_one_class_alone(served):
    label = str(served.search.labels[-1])
    answer = served.client.post(
        "/search", params={"label": label, "k": 50}, content=served.file(0)
    ).json()
    labels = [one["label"] for one in answer["neighbors"]]
    assert labels == [label] * int(np.sum(served.search.labels == label))


def test_an_image_of_the_gallery_does_not_find_itself(served):
    answer = served.client.post("/search?k=50&position=2").json()
    found = [one["position"] for one in answer["neighbors"]]
    assert 2 not in found and len(found) == len(served.search) - 1


def test_an_explanation_adds_up(served):
    answer = served.client.post(
        "/explain?neighbors=1,2&position=0",
    ).json()
    assert answer["shape"] == [6, 6]
    assert list(answer["neighbors"]) == ["1", "2"]
    for pair in answer["neighbors"].values():
        shares = [part["share"] for part in pair["prototypes"]]
        # Five prototypes, all of them named.
        assert sum(shares) == pytest.approx(pair["similarity"], abs=1e-4)


def test_a_gallery_image_is_the_square_that_is_embedded(served):
    answer = served.client.get("/image/0")
    image = Image.open(io.BytesIO(answer.content))
    assert image.format == "WEBP"
    assert image.width == image.height
    assert served.client.get("/image/999").status_code == 404
    assert served.client.get("/image/../../etc/passwd").status_code == 404


def test_a_file_that_is_gone_is_said_to_be(served, monkeypatch):
    ids = [*served.search.ids]
    ids[1] = "/nowhere.jpg"
    monkeypatch.setattr(served.search, "ids", ids)
    answer = served.client.get("/image/1")
    assert answer.status_code == 404 and "gone" in answer.json()["error"]


def png_head(width, height):
    """A PNG that claims a size and holds no pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [b"IHDR" + head, b"IDAT" + zlib.compress(b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4)
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


@pytest.mark.parametrize(
    ("contents", "status", "words"),
    [
        (b"no image", 400, "must be an image"),
        (b"", 400, "must be an image"),
        (png_head(50_000, 50_000), 400, "million pixels"),
        (png_head(9_000, 9_000), 400, "million pixels"),
        (png_head(10, 10), 400, "unreadable"),
        (b"GIF89a" + bytes(10), 400, "must be an image"),
    ],
    ids=["text", "empty", "huge", "large", "no pixels", "cut"],
)
def test_what_is_no_image_is_refused(served, contents, status, words):
    answer = served.client.post("/search", content=contents)
    assert answer.status_code == status
    assert words in answer.json()["error"]


def test_too_long_a_file_is_given_up(served, monkeypatch):
    from training.browsing import search_page

    monkeypatch.setattr(search_page, "MAX_BYTES", 1000)
    answer = served.client.post("/search", content=bytes(1001))
    assert answer.status_code == 413

    def parts():  # no length is claimed
        for _ in range(20):
            yield bytes(100)

    answer = served.client.post("/search", content=parts())
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "question",
    ["k=0", "k=101", "k=many", "label=nothing", "position=-1", "position=1e3"],
)
def test_a_question_out_of_range_is_refused(served, question):
    answer = served.client.post(f"/search?{question}", content=b"x")
    assert answer.status_code == 400
    assert "Received" in answer.json()["error"]


def test_webp_is_read_too(served):
    file = io.BytesIO()
    Image.open(io.BytesIO(served.file(0))).save(file, "WEBP", lossless=True)
    answer = served.client.post("/search?k=1", content=file.getvalue()).json()
    assert answer["neighbors"][0]["distance"] < 0.1


def test_only_this_machine_is_answered(served):
    answer = served.client.get("/", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    with browse.bound_socket(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        taken = listening.getsockname()[1]
        listening.listen()
        with pytest.raises(SystemExit, match="port"):
            browse.main([str(served.model), "--port", str(taken)])


@pytest.mark.parametrize("path", ["/search?position=0", "/explain?position=0"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", ""]
)
def test_a_page_of_another_origin_is_refused(served, path, origin):
    answer = served.client.post(path, headers={"Origin": origin})
    assert answer.status_code == 403


def test_the_page_itself_may_ask(served):
    answer = served.client.post(
        "/search?position=0", headers={"Origin": "http://127.0.0.1"}
    )
    assert answer.status_code == 200


def test_the_page_loads_nothing_from_elsewhere(served):
    page = served.client.get("/")
    assert page.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def test_a_folder_without_an_index_is_refused(served, tmp_path):
    with pytest.raises(SystemExit, match="must be an exported retriever"):
        browse.main([str(tmp_path)])


@pytest.mark.slow
def test_the_page_works_in_a_browser(served):
    skip_without_browser()
    import uvicorn
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    listening = browse.bound_socket(0)
    server = uvicorn.Server(uvicorn.Config(served.app, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        with opened_browser() as driver:

            def first(selector):
                return driver.find_element(By.CSS_SELECTOR, selector)

            def count(selector):
                return len(driver.find_elements(By.CSS_SELECTOR, selector))

            def wait(condition):
                WebDriverWait(driver, 30).until(lambda _: condition())

            driver.get(f"http://127.0.0.1:{listening.getsockname()[1]}/")
            first("#file").send_keys(served.search.ids[0])
            wait(lambda: count(".neighbor:enabled") == len(served.search))
            first("#overlay").send_keys(Keys.SPACE)
            wait(lambda: count("#found canvas") == len(served.search) + 1)
            keep_screenshot(driver, "browse-light")

            field = first("#k")
            field.clear()
            field.send_keys("2", Keys.TAB)
            wait(lambda: count(".neighbor") == 2)
            first("#threshold").send_keys("0.001")
            wait(lambda: "1 of them a match" in first("#status").text)

            first(".neighbor:enabled").send_keys(Keys.ENTER)
            assert first("#why").is_displayed()
            assert count("#why canvas") == 2
            use_colors(driver, "dark")
            keep_screenshot(driver, "browse-why-dark")
            first("#why").send_keys(Keys.ESCAPE)

            first("#label").send_keys("nothing", Keys.TAB)
            wait(lambda: "must be a class" in first("#status").text)
            first("#label").clear()
            first("[data-example]").send_keys(Keys.ENTER)
            wait(lambda: "2 neighbors" in first("#status").text)

            resize(driver, 390, 844)
            keep_screenshot(driver, "browse-phone")
            assert driver.execute_script(
                "return document.documentElement.scrollWidth <= innerWidth"
            )
            # The refusal that was asked for above is all there is.
            assert [m for m in complaints(driver) if "400" not in m] == []
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listening.close()
