"""Which code computes something: a hash of it in which comments, docstrings and layout do not count."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

OURS = ("harness", "systems")


def code_of(*modules: str) -> str:
    """A hash of the code that `modules` and all that they import are made of: of `harness`, `systems`, and what else is
    neither Python's own nor installed; 12 hex digits.

    Comments, docstrings and layout do not count. A module that cannot be found counts by its name alone.
    """
    seen: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        path = _source(name)
        seen[name], imported = _read(path, path.stat().st_mtime_ns) if path is not None else ("", ())
        waiting += imported
    hashed = hashlib.sha256("\n".join(f"{name} {seen[name]}" for name in sorted(seen)).encode())
    return hashed.hexdigest()[:12]


def code_in(files: Iterable[Path]) -> str:
    """The same of these files alone, whatever they import."""
    return hashlib.sha256("\n".join(_read(path, path.stat().st_mtime_ns)[0] for path in sorted(files)).encode()).hexdigest()[:12]


def _source(module: str) -> Path | None:
    """The file of a module that counts; None for all others. Found by place, since to ask Python would import its parents."""
    package, *inside = module.split(".")
    root = _root(package)
    if root is None or not inside:
        return root
    if root.name != "__init__.py":
        return None
    place = root.parent.joinpath(*inside)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _root(package: str) -> Path | None:
    """The file of a module or package that stands in no other, where it counts."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    if package not in OURS and any(Path(spec.origin).is_relative_to(place) for place in _installed()):
        return None
    return Path(spec.origin)


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))


@functools.lru_cache(maxsize=1024)
def _read(path: Path, _changed: int) -> tuple[str, tuple[str, ...]]:
    """The hash of a file's code, and the modules that it may import, wherever in it the import stands."""
    tree = ast.parse(path.read_bytes())
    imported: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported |= dict.fromkeys([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    ours = tuple(name for name in imported if _source(name) is not None)
    return hashlib.sha256("\0".join(_words(tree)).encode()).hexdigest(), ours


def _words(node: ast.AST) -> Iterator[str]:
    """A syntax tree as words: equal for equal code, whatever the version of Python that parsed it."""
    yield type(node).__name__
    for field in node._fields:
        value = getattr(node, field, None)
        if value is None or value == []:
            continue  # which of them stand there differs between versions
        yield field
        for each in _without_docstring(node, field, value) if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _words(each)
            else:
                yield repr(each)


def _without_docstring(node: ast.AST, field: str, body: list) -> list:
    first = body[0]
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and field == "body"
    if documented and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body
