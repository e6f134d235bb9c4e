"""A headless browser for pages, where one is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def started() -> Iterator[Browser]:
    """A browser for one file of tests; a skip that says why where there is none, or a failure where
    HALOBENCH_MUST_HAVE asks for one.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    lacking = "" if found else f"none of {', '.join(NAMES)} is installed"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking = lacking or "playwright is not installed"
    if lacking:
        assert "browser" not in os.environ.get("HALOBENCH_MUST_HAVE", ""), lacking
        pytest.skip(lacking)
    with sync_playwright() as playwright:
        # Tests may run as root, whom the sandbox refuses; the pages are our own.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=120_000)
        yield browser
        browser.close()
