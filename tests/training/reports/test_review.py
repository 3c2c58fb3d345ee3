"""The doctor's page of suspects, from a folder to the list it saves."""

import keras
import numpy as np
import pytest
from PIL import Image

from tests.training import headless_browser as browser
from training import doctor

# A name that a shell or a page must not read as its own.
BAD = "blue/it's <b>.png"


@pytest.fixture
def colors(tmp_path):
    """Four classes of plain colors; a red image is among the blue ones."""
    import keras_gsp as gsp

    rng = np.random.default_rng(0)
    tones = [(200, 20, 20), (20, 200, 20), (20, 20, 200), (200, 200, 20)]
    for tone, name in zip(
        tones, ("red", "green", "blue", "sun <1>"), strict=True
    ):
        for number in range(8):
            file = tmp_path / "photos" / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            own = tone
            if (name, number) == ("blue", 3):
                own, file = tones[0], tmp_path / "photos" / BAD
            pixels = np.asarray(own) + rng.integers(-20, 20, (24, 24, 3))
            Image.fromarray(pixels.astype("uint8")).save(file)
    backbone = keras.Sequential(
        [keras.Input((24, 24, 3)), keras.layers.AveragePooling2D(4)]
    )
    encoder = gsp.models.build_encoder(
        backbone,
        embedding_size=None,
        preprocessing=gsp.data.Preprocessing(24, 24),
    )
    encoder.save(tmp_path / "encoder.keras")
    return tmp_path


def options(folder):
    return [
        *("--data-dir", str(folder / "photos")),
        *("--encoder", str(folder / "encoder.keras")),
        *("--review", str(folder / "review.html")),
    ]


@pytest.mark.slow
def test_a_wrong_label_is_on_the_page_until_it_is_decided(colors, capsys):
    doctor.main(options(colors))
    printed = capsys.readouterr().out
    question = f"{BAD} is labeled blue. Is it red?"
    assert f"1 label that may be wrong\n    {question}" in printed
    assert "save decisions.csv, then give this command" in printed
    page = (colors / "review.html").read_text()
    escaped = "blue/it&#39;s &lt;b&gt;.png"
    assert f"{escaped} is labeled blue. Is it red?" in page
    assert "<b>" not in page
    assert "no leakage" in page and "sun <1>" not in page
    assert "http" not in page.replace("http-equiv", "")
    with pytest.raises(SystemExit, match="`review` must be new"):
        doctor.main(options(colors))
    # Its decisions heal the collection.
    (colors / "review.html").unlink()
    decisions = colors / "decisions.csv"
    decisions.write_text(f"path,decision,label\n{BAD},relabel,red\n")
    doctor.main([*options(colors), "--decisions", str(decisions)])
    printed = capsys.readouterr().out
    assert "may be wrong" not in printed and "7 to 9 in each" in printed


@pytest.mark.slow
def test_the_page_saves_a_list_in_a_browser(colors):
    doctor.main(options(colors))
    with browser.opened() as driver:
        driver.get((colors / "review.html").as_uri())
        first, _, _ = browser.finders(driver)
        first("input[value=relabel]").click()
        browser.keep_screenshot(driver, "review")
        field = first("label input[type=search]")
        assert field.size["width"] > 150
        assert "1 to relabel" in first("#status").text
        saved = driver.execute_script("return decisions()")
        assert f'"{BAD}","relabel","red"' in saved
        browser.check_phone(driver, "review-phone")
        assert not browser.complaints(driver)
