"""Runtime shape checks for measurements and training, the command line, models in folders, and a browser."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook(["rankscope.measure", "rankscope.training"], "beartype.beartype")

torch.set_num_threads(1)  # tensors are small here

if paths := os.environ.get(
    "PYTHONPATH"
):  # tests start processes in other folders: the same package is found there
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(path).absolute()) for path in paths.split(os.pathsep))


@pytest.fixture(autouse=True)
def one_thread():
    """Whatever a test before has left: a second thread would only wait, at full load, and would round sums otherwise."""
    torch.set_num_threads(1)


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """The command line in this process, with a cache of its own."""
    from tests.command_line import call

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *args: call(monkeypatch, capsys, *args)


@pytest.fixture
def refuses(cli, monkeypatch, tmp_path):
    """Whether a line is a mistake: told in one line with its remedy, exit code 2, and nothing is left behind."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def check(*args, saying):
        code, out, err = cli(*args)
        assert (code, out) == (2, "")
        assert saying in err
        assert err.count("\n") == 1
        assert list(here.iterdir()) == []

    return check


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """li2024 at scale smoke with two seeds, run once for all tests."""
    folder = tmp_path_factory.mktemp("run")
    args = ("reproduce", "li2024", "--scale", "smoke", "--seeds", "2", "--out", str(folder))
    command = [sys.executable, "-m", "rankscope.cli", *args]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder
    )  # no results/ there
    assert "trainings in" in done.stderr
    return folder


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """Folders NAME and NAME-tuned of three architectures, and token ids for all of them."""
    from safetensors.torch import save_file

    from rankscope.core.streams import stream
    from tests.zoo import SAVED, build, moved

    folder = tmp_path_factory.mktemp("zoo")
    for name in SAVED:
        base = build(name)
        base.save_pretrained(folder / name)
        moved(base).save_pretrained(folder / f"{name}-tuned")
    tokens = torch.randint(0, 50, (11, 16), generator=stream(0, "tokens"))
    (folder / "ids.json").write_text(json.dumps(tokens.tolist()))
    save_file({"input_ids": tokens, "labels": tokens.clone()}, folder / "ids.safetensors")
    return folder


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
