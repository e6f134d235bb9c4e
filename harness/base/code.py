"""A hash of the code that computes something, in which comments, docstrings and layout do not count."""

import ast
import contextlib
import functools
import hashlib
import importlib.util
import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

OURS = ("harness", "systems")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_of(*modules: str) -> str:
    """A hash, 12 hex digits, of the code of `modules` and of all modules that they import, directly or not,
    if these are part of `harness` or `systems`, or are neither Python's own nor installed.

    Comments, docstrings and layout do not count. One of `modules` that cannot be found counts by its name."""
    seen: dict[str, str] = {}
    others: set[str] = set()  # imported, and not counted
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in seen or name in others:
            continue
        path = _own_source(name) if name.partition(".")[0] in OURS else _source(name)
        if path is None and name not in modules:
            others.add(name)
            continue
        seen[name], imported = _read(path) if path is not None else ("", ())
        parent = name.rpartition(".")[0]
        package = name if path is not None and path.name == "__init__.py" else parent
        # Importing a module also runs the __init__.py of the packages that it is in.
        waiting += filter(None, [parent, *(_absolute(each, package) for each in imported)])
    hashed = hashlib.sha256("\n".join(f"{name} {seen[name]}" for name in sorted(seen)).encode())
    return hashed.hexdigest()[:12]


def code_in(files: Iterable[Path]) -> str:
    """A hash, 12 hex digits, of the code of these files alone, whatever they import."""
    return hashlib.sha256("\n".join(_read(path)[0] for path in sorted(files)).encode()).hexdigest()[:12]


def _absolute(module: str, package: str) -> str | None:
    """The full name of a module imported in `package`; None where its leading dots lead too far up."""
    try:
        return importlib.util.resolve_name(module, package)
    except ImportError:
        return None


def _source(module: str) -> Path | None:
    """The file of a module that counts, else None. Found by path: asking Python would import its parents."""
    package, *inside = module.split(".")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    # A folder without an __init__.py is a package too, without code, and may be spread over several places.
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [Path(spec.origin)] if spec.origin is not None and spec.origin.endswith(".py") else []
    if inside:
        stems = [place.joinpath(*inside) for place in places]
        files = [file for stem in stems for file in (stem / "__init__.py", stem.parent / f"{stem.name}.py")]
    return next((file for file in files if file.is_file() and _counts(package, file)), None)


OWN = Path(__file__).read_bytes()
_OWN: dict[str, Path] = {}


def _own_source(module: str) -> Path | None:
    """`_source` of a module of `OURS`; once found, a file is not looked for again. Nor is a module looked for
    in a file that is no package: most of what is asked for is the name of a function there."""
    parent = module.rpartition(".")[0]
    if parent and (above := _own_source(parent)) is not None and above.name != "__init__.py":
        return None
    if module not in _OWN and (found := _source(module)) is not None:
        _OWN[module] = found
    return _OWN.get(module)


def _counts(package: str, file: Path) -> bool:
    return package in OURS or not any(file.is_relative_to(place) for place in _installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))


@functools.cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """The hash of a file's code, and the modules that it imports anywhere, as they are written there. Read
    once per process: a sweep goes on with the code that it has imported, even if the file changes."""
    source = path.read_bytes()
    # Parsing all files takes a second of every start, so the result is kept beside the compiled file. It is
    # valid for these bytes of the file and for the present code of this module.
    kept = Path(importlib.util.cache_from_source(path)).with_suffix(".code")
    stamp = hashlib.sha256(OWN + source).hexdigest()
    with contextlib.suppress(OSError, ValueError):
        found, hashed, *imported = kept.read_text().split()
        if found == stamp:
            return hashed, tuple(imported)
    hashed, names = _parsed(source)
    with contextlib.suppress(OSError):  # somebody else's folder
        kept.parent.mkdir(exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.part")
        part.write_text(" ".join([stamp, hashed, *names]))
        part.replace(kept)
    return hashed, names


def _parsed(source: bytes) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(source)
    imported: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots, module = "." * node.level, node.module or ""
            inside = f"{dots}{module}." if module else dots
            imported |= dict.fromkeys([dots + module, *(inside + alias.name for alias in node.names)])
    return hashlib.sha256("\0".join(_words(tree)).encode()).hexdigest(), tuple(imported)


def _words(node: ast.AST) -> Iterator[str]:
    """A syntax tree as words: equal for equal code, whatever the version of Python that parsed it."""
    documented = isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
    yield type(node).__name__
    for field in node._fields:
        value = getattr(node, field, None)
        if value is None or value == []:
            continue  # Python's versions differ in which empty fields a node has
        yield field
        if field == "body" and documented:
            value = value[1:]
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _words(each)
            else:
                yield repr(each)
    yield "end"  # else code inside a block would look the same as code after it
