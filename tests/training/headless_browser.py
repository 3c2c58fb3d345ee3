"""A real browser without a screen, where one is installed."""

import contextlib
import os
import shutil
import tempfile

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    # Whatever is not on this machine does not exist.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def skip_without_browser():
    """Skips a test, and says why, where Chromium or its driver is missing."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            pytest.skip(
                f"{name} is not installed (apt-get install chromium "
                "chromium-driver)"
            )


@contextlib.contextmanager
def opened_browser(width=1280, height=900):
    """Yields a Selenium driver with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # The driver of the system: none is looked for elsewhere.
        service = Service(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options, service)
        try:
            resize(driver, width, height)
            yield driver
        finally:
            driver.quit()


def resize(driver, width, height):
    """Gives the page itself this size, pixels, as a phone would."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        },
    )


def use_colors(driver, scheme):
    """Lets the system prefer `light` or `dark`."""
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


def keep_screenshot(driver, name):
    """Writes a screenshot where SCREENSHOTS says, if it says so."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        os.makedirs(folder, exist_ok=True)
        driver.save_screenshot(os.path.join(folder, f"{name}.png"))


def complaints(driver):
    """What the page wrote to the console as an error or a warning."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")
        if entry["level"] in ("SEVERE", "WARNING")
    ]
