"""Chromium without a screen, where it is installed."""

import contextlib
import os
import shutil
import tempfile

import pytest

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    # No other host than this machine resolves.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


@contextlib.contextmanager
def opened(width=1280, height=900):
    """Yields a Selenium driver with a new profile, or skips the test."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in paths:
        pytest.skip("missing: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = paths[0]
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, Service(paths[1]))
        try:
            resize(driver, width, height)
            yield driver
        finally:
            driver.quit()


def finders(driver):
    """Functions: first element of a selector, all of them, wait."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    # An element may be replaced between finding and reading it.
    waiting = WebDriverWait(
        driver, 30, ignored_exceptions=[StaleElementReferenceException]
    )
    return (
        lambda selector: driver.find_element(By.CSS_SELECTOR, selector),
        lambda selector: driver.find_elements(By.CSS_SELECTOR, selector),
        lambda condition: waiting.until(lambda _: condition()),
    )


def resize(driver, width, height):
    """Sets the size of the page, pixels; under 600 it is a phone."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1}
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", size | {"mobile": width < 600}
    )


def check_phone(driver, name):
    """Asserts that nothing is wider than the screen of a phone."""
    resize(driver, 390, 844)
    keep_screenshot(driver, name)
    assert driver.execute_script(
        "return document.documentElement.scrollWidth <= innerWidth"
    )


def keep_screenshot(driver, name):
    """Writes a screenshot to the folder SCREENSHOTS, if it is set."""
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        os.makedirs(folder, exist_ok=True)
        driver.save_screenshot(os.path.join(folder, f"{name}.png"))


def complaints(driver):
    """Errors and warnings that the page wrote to the console."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")
        if entry["level"] in ("SEVERE", "WARNING")
    ]
