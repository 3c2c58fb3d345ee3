"""The page that searches an export: its answers, its limits, its look."""

import io
import json
import shutil
import struct
import threading
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.training import headless_browser as browser
from training import browse
from training.browsing.exports import gallery_bytes

pytest.importorskip("starlette")
pytest.importorskip("httpx2")
from training.browsing import search_page  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture
def served(tiny):
    """The session's export, its page, and a client of the page."""
    from starlette.testclient import TestClient

    app = search_page.search_app(tiny.search, ("127.0.0.1",))
    client = TestClient(app, base_url="http://127.0.0.1")
    return SimpleNamespace(search=tiny.search, app=app, client=client)


def test_the_page_finds_the_neighbors_of_the_export(served):
    contents = served.search.image(served.search.ids[5])
    exported = served.search.call("search_exact", image_bytes=[contents])
    answer = served.client.post("/search?k=10", content=contents).json()
    found = answer["neighbors"]
    names = [one["name"] for one in found]
    assert names == exported["ids"][0].astype(str).tolist()
    distances = [one["distance"] for one in found]
    # Of a square root near zero.
    np.testing.assert_allclose(distances, exported["distances"][0], atol=1e-4)
    # More than the export returns, without the query itself.
    more = served.client.post("/search?k=50&position=2").json()["neighbors"]
    distances = [one["distance"] for one in more]
    assert distances == sorted(distances)
    positions = {one["position"] for one in more}
    assert positions == {*range(len(served.search.ids))} - {2}


def test_the_page_finds_a_box_and_one_image_of_each_item(served):
    contents = served.search.image(served.search.ids[5])
    pixels = np.asarray(Image.open(io.BytesIO(contents)).convert("RGB"))
    rows, columns = pixels.shape[:2]
    side = round(min(rows, columns) * served.search.crop_fraction)
    top, left = (rows - side) // 2, (columns - side) // 2
    part = pixels[top:, left:][: side // 2, : side // 2]
    file = io.BytesIO()
    Image.fromarray(part).save(file, "PNG")
    expected = served.client.post("/search?k=3", content=file.getvalue())
    answer = served.client.post(
        f"/search?k=3&box=0,0,{side // 2 / side},{side // 2 / side}",
        content=contents,
    )
    assert answer.json() == expected.json() and answer.status_code == 200
    assert answer.json()["box"] is None  # of an encoder that looks once
    for box in ("0,0,1", "0,0,0,1", ".5,0,.6,1", "nan,0,1,1", "a,0,1,1"):
        answer = served.client.post(f"/search?box={box}", content=contents)
        assert answer.status_code == 400 and "`box`" in answer.json()["error"]
    found = served.client.post("/search?k=5&items=1", content=contents).json()
    items = [one["item"] for one in found["neighbors"]]
    assert len({*items}) == 5 and items[0] == served.search.labels[5]
    assert all(1 <= one["count"] <= 4 for one in found["neighbors"])


def test_contributions_sum_to_the_similarity(served):
    answer = served.client.post("/explain?neighbors=1,2&position=0").json()
    assert answer["shape"] == [6, 6]
    assert list(answer["neighbors"]) == ["1", "2"]
    for pair in answer["neighbors"].values():
        shares = [part["share"] for part in pair["prototypes"]]
        # All five prototypes are named.
        assert sum(shares) == pytest.approx(pair["similarity"], abs=1e-4)


def test_a_gallery_image_is_cut_to_the_embedded_square(served, monkeypatch):
    answer = served.client.get("/image/0")
    image = Image.open(io.BytesIO(answer.content))
    assert image.format == "WEBP"
    assert image.width == image.height
    assert served.client.get("/image/999").status_code == 404
    assert served.client.get("/image/../../etc/passwd").status_code == 404
    monkeypatch.setattr(served.search, "ids", ["/nowhere.jpg"])
    answer = served.client.get("/image/0")
    assert answer.status_code == 404 and "missing" in answer.json()["error"]


def test_an_id_outside_of_the_data_folder_is_not_read(tmp_path):
    root, secret = tmp_path / "photos", tmp_path / "secret.png"
    root.mkdir()
    for file in (secret, root / "1.png"):
        file.write_bytes(b"bytes")
    for id_ in ("../secret.png", "a/../../secret.png", str(secret)):
        assert gallery_bytes(tmp_path, id_, root) is None
    assert gallery_bytes(tmp_path, "1.png", root) == b"bytes"


def png_head(width, height):
    """A PNG that claims a size and holds no pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for chunk in (head, b"IDAT" + zlib.compress(b"")):
        length, check = len(chunk) - 4, zlib.crc32(chunk)
        content += struct.pack(">I", length) + chunk + struct.pack(">I", check)
    return content


def test_a_bad_image_is_refused(served):
    for contents, words in (
        (b"no image", "unreadable"),
        (b"", "unreadable"),
        (png_head(50_000, 50_000), "too large"),
        (png_head(10, 10), "unreadable"),
        (b"GIF89a" + bytes(10), "unreadable"),
    ):
        answer = served.client.post("/search", content=contents)
        assert answer.status_code == 400
        assert words in answer.json()["error"]


def test_an_upload_stops_at_the_size_limit(served, monkeypatch):
    monkeypatch.setattr(search_page, "MAX_BYTES", 1000)
    # With and without a content-length.
    for content in (bytes(1001), (bytes(100) for _ in range(20))):
        answer = served.client.post("/search", content=content)
        assert answer.status_code == 413


def test_parameters_and_origins(served):
    for path, origin, status in (
        ("/search?k=0", None, 400),
        ("/search?k=101", None, 400),
        ("/search?k=many", None, 400),
        ("/search?position=-1", None, 400),
        ("/search?position=1e3", None, 400),
        ("/search?position=999", None, 404),
        ("/search?position=0", "http://127.0.0.1", 200),
        ("/search?position=0", "http://evil.example", 403),
        ("/explain?neighbors=1&position=0", "http://evil.example", 403),
        ("/explain?neighbors=1&position=0", "null", 403),
        ("/search?position=0", "https://127.0.0.1", 403),
        ("/search?position=0", "", 403),
    ):
        headers = {} if origin is None else {"Origin": origin}
        answer = served.client.post(path, headers=headers, content=b"")
        assert answer.status_code == status, (path, origin)
        assert status != 400 or "Received" in answer.json()["error"]


def test_other_hosts_sources_and_taken_ports_are_refused(served):
    answer = served.client.get("/", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    page = served.client.get("/")
    assert page.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    with browse.bound_socket(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        taken = listening.getsockname()[1]
        listening.listen()
        with pytest.raises(SystemExit, match="port"):
            browse.main([str(served.search.folder), "--port", str(taken)])


def test_an_export_with_another_crop_than_it_was_made_with(served, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(served.search.folder, model)
    facts = served.search.metadata | {"crop_fraction": 0.5}
    (model / "metadata.json").write_text(json.dumps(facts))
    with pytest.raises(SystemExit, match="metadata.json: changed"):
        browse.main([str(model), "--port", "0"])


@pytest.fixture
def opened(served, tiny):
    """The page in a browser, with the neighbors of an image; its finders."""
    import uvicorn

    listening = browse.bound_socket(0)
    server = uvicorn.Server(uvicorn.Config(served.app, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        with browser.opened(1200) as driver:
            first, all_of, wait = browser.finders(driver)
            driver.get(f"http://127.0.0.1:{listening.getsockname()[1]}/")
            first("#file").send_keys(str(tiny.images / tiny.search.ids[0]))
            wait(lambda: len(all_of(".neighbor:enabled")) == 12)
            yield driver, first, all_of, wait
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listening.close()


def test_the_page_works_in_a_browser(opened):
    from selenium.webdriver.common.keys import Keys

    driver, first, all_of, wait = opened
    assert "this is the query" in first(".neighbor").text
    assert not first(".legend").is_displayed()
    first("#overlay").send_keys(Keys.SPACE)
    wait(lambda: len(all_of("#found canvas")) == 13)
    browser.keep_screenshot(driver, "browse-light")

    first("#k").clear()
    first("#k").send_keys("2", Keys.TAB)
    wait(lambda: len(all_of(".neighbor:enabled")) == 2)
    first("#threshold").send_keys("0.001")
    wait(lambda: "1 of them a match" in first("#status").text)
    assert first(".verdict").text == "✓ in the gallery"

    first(".neighbor:enabled").send_keys(Keys.ENTER)
    wait(lambda: first("#why").is_displayed())
    assert len(all_of("#why .pair canvas")) == 2
    assert len(all_of("#why .patch")) == 2 * 5  # prototypes
    browser.use_colors(driver, "dark")
    browser.keep_screenshot(driver, "browse-why-dark")
    first("#why").send_keys(Keys.ESCAPE)

    first("#k").clear()
    first("#k").send_keys("101", Keys.TAB)
    wait(lambda: "must be in [1, 100]" in first("#status").text)
    first("#k").clear()
    first("#k").send_keys("2", Keys.TAB)
    first("[data-example]").send_keys(Keys.ENTER)
    wait(lambda: "2 neighbors" in first("#status").text)

    browser.check_phone(driver, "browse-phone")
    # The console shows the refused number and nothing else.
    complaints = browser.complaints(driver)
    assert [line for line in complaints if "400" not in line] == []


def test_a_box_is_dragged_over_the_query_in_a_browser(opened):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    driver, first, all_of, wait = opened
    first("#threshold").send_keys("0.001")
    wait(lambda: "1 of them a match" in first("#status").text)
    drag = ActionChains(driver).move_to_element(first(".own"))
    drag.click_and_hold().move_by_offset(40, 30).release().perform()
    wait(lambda: len(all_of(".own .box")) == 1)
    wait(lambda: "0 of them matches" in first("#status").text)
    first("#items").send_keys(Keys.SPACE)
    wait(lambda: " image" in first(".neighbor").text)
    browser.keep_screenshot(driver, "browse-box")
    wait(lambda: all_of(".neighbor:enabled"))
    first(".neighbor:enabled").send_keys(Keys.ENTER)
    wait(lambda: first("#why").is_displayed())
    browser.keep_screenshot(driver, "browse-box-why")
    first("#why").send_keys(Keys.ESCAPE)
    ActionChains(driver).click(first(".own")).perform()
    wait(lambda: not all_of(".own .box"))
    wait(lambda: "1 of them a match" in first("#status").text)
    assert browser.complaints(driver) == []
