"""Packages that only an extra of this one brings."""

from __future__ import annotations

import importlib
from types import ModuleType

from harness.base.errors import InputError


def package(name: str, extra: str) -> ModuleType:
    """The module `name`. InputError, which names the extra that brings it, where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing = name.partition(".")[0]
        raise InputError(f'{missing} is not installed: pip install "halobench[{extra}]"') from None
