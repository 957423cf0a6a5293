"""Runtime shape checks for every function of the package, and a browser for the pages."""

import shutil
import subprocess

import pytest
from jaxtyping import install_import_hook

with install_import_hook("rankscope", "beartype.beartype"):
    import rankscope  # noqa: F401


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium, installed from the distribution's packages where that is possible."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        install = "apt-get update -qq && apt-get install -y -qq chromium chromium-driver"
        if (
            shutil.which("apt-get") is None
            or subprocess.run(install, shell=True, capture_output=True, check=False).returncode
        ):
            pytest.skip(
                "the page was NOT opened in a browser: chromium and chromedriver are not here; install both"
            )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update",
        "disable-sync", "no-first-run", "window-size=1300,1600",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()
