"""What several tests of the reports share."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
Browse = Callable[..., tuple[str, str]]


@pytest.fixture(scope="session")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Browse:
    """Opens a file in a headless browser: gives the page as it is after its scripts ran, and the log of the browser."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium or Chrome on this machine; how the report behaves in a browser is not checked")

    def open_page(page: Path, *flags: str, fragment: str = "") -> tuple[str, str]:
        profile = tmp_path_factory.mktemp("profile")
        command = [
            found,
            "--headless",
            # A browser that runs as root, as in containers, refuses its own sandbox.
            *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={profile}",
            # Every address but a file fails, and the failure is in the log.
            "--proxy-server=http://127.0.0.1:9",
            "--window-size=1300,2400",
            "--virtual-time-budget=15000",
            "--enable-logging=stderr",
            "--v=0",
            "--dump-dom",
            *flags,
            page.as_uri() + fragment,
        ]
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        shutil.rmtree(profile, ignore_errors=True)
        return done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    return open_page
