"""The package layers, held: who imports whom, who knows torch.distributed, what may be named where."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (
    "harness.base",
    "harness.data",
    "harness.comm",
    "harness.core",
    "systems.parts",
    "systems",
    "harness.results",
    "harness.run",
    "harness.cli",
)  # systems and systems.parts are one layer
# Beside the layers, and not needed by any of them; one may use those before it.
OPTIONAL = ("harness.dev", "harness.model", "harness.papers", "harness.submissions")
FILES = sorted([*ROOT.glob("harness/**/*.py"), *ROOT.glob("systems/**/*.py")])
PACKAGES = sorted(p.parent.name for p in ROOT.glob("harness/*/__init__.py"))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def layer_of(module: str) -> int:
    """The number of a module's package layer; the package itself, which holds the version, is below all, and
    what `halobench` and Python begin with are above the layers."""
    if module in ("harness", "harness.__version__"):
        return -1
    known = (*LAYERS, *OPTIONAL)
    inside = [i for i, each in enumerate(known) if module == each or module.startswith(each + ".")]
    return inside[0] if inside else LAYERS.index("harness.cli")


MODULES = {module_of(path) for path in FILES}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def imports(path: Path) -> set[str]:
    """Every module a file imports, wherever in it the import stands; `from harness import x` is harness.x."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the package layer"
            inside = node.module in ("harness", "systems", "torch", "torch.distributed")
            found |= {f"{node.module}.{alias.name}" if inside else node.module for alias in node.names}
            found |= {f"{node.module}.{alias.name}" for alias in node.names} & MODULES
    return found


def test_imports_run_downwards():
    pairs = [(module_of(path), name) for path in FILES for name in imports(path)]
    upwards, named = [], []
    for own, name in pairs:
        if name.split(".")[0] in ("harness", "systems"):
            upwards += [(own, name)] if layer_of(name) > layer_of(own) else []
            core = layer_of(own) < len(LAYERS) and not own.startswith("systems")
            named += [(own, name)] if core and name.startswith("systems") else []
    assert upwards == [], "imports from a package layer above"
    assert named == [], "only Hydra's _target_ names a system"


def test_an_upward_import_would_be_seen():
    names = "comm.comm core.trainer results.reader run.launch cli.runs dev.bench.spmm model.replay.engine"
    layers = [layer_of(f"harness.{name}") for name in [*names.split(), "papers.claims.verdict"]]
    assert layers == sorted(set(layers)) and layer_of("harness.__main__") == layer_of("harness.cli.runs")
    assert layers[2] > layer_of("systems.vanilla") > layers[1]
    assert layer_of("systems.vanilla") > layer_of("systems.parts.blocks")
    assert "harness.comm.group" in imports(ROOT / "harness" / "run" / "train.py")


def test_no_modules_import_each_other():
    """Neither at the top of a file nor inside a function: a circle is two modules that are one."""
    TopologicalSorter(
        {module_of(path): imports(path) & MODULES - {module_of(path)} for path in FILES}
    ).prepare()


def test_every_module_is_in_a_package_and_short():
    assert {f"harness.{name}" for name in PACKAGES} <= {*LAYERS, *OPTIONAL}
    loose = {path.name for path in ROOT.glob("harness/*.py")}
    assert loose == {"__init__.py", "__main__.py", "api.py"}
    long = {str(path.relative_to(ROOT)) for path in FILES if len(path.read_text().splitlines()) > 400}
    assert not long, "split them"


def test_no_two_modules_of_the_core_have_one_name():
    core = [path for path in FILES if not module_of(path).startswith(OPTIONAL)]
    names = Counter(path.stem for path in core if path.stem not in ("__init__", "__main__", "config"))
    assert {name for name, count in names.items() if count > 1} == set()


def test_only_comm_knows_torch_distributed():
    for path in FILES:
        own = module_of(path)
        known = {name for name in imports(path) if name.startswith("torch.distributed")}
        if own == "harness.run.train":
            # the file in which torch's `record` tells why a worker failed
            known = {name for name in known if not name.startswith("torch.distributed.elastic")}
        assert not known or own.startswith("harness.comm."), f"{own} imports {known}"
        nodes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute))
        attributes = {ast.unparse(node) for node in nodes if node.attr == "distributed"}
        assert own.startswith("harness.comm.") or "torch.distributed" not in attributes, own


def named_in(code: ast.Module, systems: set[str]) -> set[str]:
    """Which of `systems` a module names in its strings, docstrings apart: as a whole string, in quotes, as a
    choice of `system=` or as a module of `systems`. A plain identifier, or a word of a sentence, is no name
    of a system: one may be called `shard`."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(code)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node) is not None
    }
    found = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            text = f'"{node.value.lower()}"'
            found |= set(re.findall(r"(?<=[\"'`])([a-z]\w*)(?=[\"'`/])", text))
            found |= set(re.findall(r"\bsystems\.(\w+)", text))
            for chosen in re.findall(r"\bsystem=([\w,/]+)", text):
                found |= {name.split("/")[0] for name in chosen.split(",")}
    return found & systems


# "local" is also a value of launch=, so for that system the import rule alone stands guard.
SYSTEMS = {
    re.search(r"_target_: systems\.(\w+)", p.read_text())[1] for p in ROOT.glob("conf/system/**/*.yaml")
} - {"local"}


def test_no_system_is_named_in_the_harness():
    assert {"vanilla", "sancus", "cagnet", "zero_halo"} <= SYSTEMS
    for path in ROOT.glob("harness/**/*.py"):
        if path.relative_to(ROOT).parts[1:3] in (
            ("dev", "bench"),
            ("papers", "figures"),
            ("papers", "study"),
        ):
            continue  # they name the systems they run, as a command line does
        named = named_in(tree(path), SYSTEMS | {"shard"})  # which a system from outside may be called
        assert not named, f"{path.relative_to(ROOT)} names {named}"


@pytest.mark.parametrize(
    "code, named",
    [
        ('if name == "sancus": pass', {"sancus"}),
        ('start("system=vanilla,sancus/official epochs=2")', {"vanilla", "sancus"}),
        ('load(f"systems.sancus.{name}")', {"sancus"}),
        ('shard = folder.shard("a shard of sancus")', set()),
        ('"""What `sancus` does."""', set()),
        ("def sancus(shard): return shard.sancus", set()),
    ],
)
def test_a_systems_name_is_found_where_it_is_quoted(code, named):
    assert named_in(ast.parse(code), {"vanilla", "sancus", "shard"}) == named


CHANGES = (
    "append", "appendleft", "add", "update", "extend", "insert", "pop", "popitem", "remove", "discard",
    "clear", "setdefault",
)  # fmt: skip


def mutable_state(code: ast.Module) -> list[str]:
    """Statements that make, rebind or change a mutable value of the module: a constant is UPPERCASE, and
    never changed."""
    found, constants = [], set()
    for node in code.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
            kinds = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
            if isinstance(node.value, kinds) and not all(name.isupper() for name in names):
                found.append(ast.unparse(node))
            constants |= names
    for node in ast.walk(code):
        stores = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
        changes = isinstance(node, ast.Attribute) and node.attr in CHANGES
        of_a_constant = (stores or changes) and isinstance(node.value, ast.Name) and node.value.id.isupper()
        if isinstance(node, ast.Global) or (of_a_constant and node.value.id in constants):
            found.append(ast.unparse(node))
    return found


def test_no_mutable_state_at_module_level():
    found = {module_of(path): state for path in FILES if (state := mutable_state(tree(path)))}
    assert found == {"harness.base.code": ["_OWN[module]"]}  # files that are looked for once


def test_the_diagram_shows_every_package():
    diagram = "".join((ROOT / "docs" / "architecture.md").read_text().split("```")[1::2])
    for name in (*(f"harness/{package}" for package in PACKAGES), "systems"):
        assert re.search(rf"^ {name}\b", diagram, re.M), f"docs/architecture.md's diagram lacks {name}"
