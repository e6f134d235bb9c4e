"""The hash of code: what is imported, wherever from, and where in it things stand; neither comments nor
layout.
"""

import pytest

from harness.base import code
from harness.base.code import code_in, code_of


def package(folder, **modules: str):
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def rewrite(path, text: str) -> None:
    """As another process would find the file."""
    path.write_text(text)
    code._read.cache_clear()


def test_code_is_what_is_imported_and_neither_comments_nor_layout(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package(
        tmp_path,
        idea_a='"""An idea."""\nimport torch\nfrom idea_b import step\n\n\ndef f(x):\n    return step(x)\n',
        idea_b="def step(x):\n    from idea_c import more\n    return more(x)\n",
        idea_c="more = abs\n",
        idea_d="more = 1\n",
    )
    first = code_of("idea_a")

    def changed(**modules: str) -> bool:
        for name, text in modules.items():
            rewrite(tmp_path / f"{name}.py", text)
        return code_of("idea_a") != first

    otherwise = '"""So."""\nimport torch  # why\nfrom idea_b import step\ndef f(x):\n  return (step(x))\n'
    assert not changed(idea_a=otherwise)
    assert not changed(idea_d="more = 2\n")
    assert changed(idea_c="more = round\n")
    assert changed(idea_b="def step(x):\n    return x\n")


@pytest.mark.parametrize(
    "one, other",
    [
        ("if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n"),
        (
            "for x in a:\n    for y in x:\n        b(y)\n        c(y)\n",
            "for x in a:\n    for y in x:\n        b(y)\n    c(y)\n",
        ),
        ("x = a - (b - c)\n", "x = a - b - c\n"),
        ("x = None\n", "x = ()\n"),
    ],
)
def test_where_a_statement_or_an_argument_stands_is_code(tmp_path, one, other):
    """The same words in the same order, in another structure."""
    for name, text in (("one", one), ("other", other), ("again", f"# Why.\n{one}")):
        package(tmp_path, **{name: text})
    codes = [code_in([tmp_path / f"{name}.py"]) for name in ("one", "other", "again")]
    assert codes[0] == codes[2] != codes[1]


@pytest.mark.parametrize("beside", [("__init__",), ()], ids=["package", "folder"])
@pytest.mark.parametrize("written", ["from .helper import f", "from .. import more", "import mine_x.more"])
def test_code_of_a_package_of_ones_own_holds_all_its_files(tmp_path, monkeypatch, written, beside):
    """Imported with dots or without, and from a folder that has no __init__.py too."""
    monkeypatch.syspath_prepend(tmp_path)
    inner = tmp_path / "mine_x" / "sub"
    inner.mkdir(parents=True)
    package(inner, idea=f"{written}\n", helper="f = 1\n", **dict.fromkeys(beside, "a = 1\n"))
    package(inner.parent, more="g = 1\n", **dict.fromkeys(beside, "a = 1\n"))
    first = code_of("mine_x.sub.idea")
    read = "helper" if "helper" in written else "more"
    for file in [
        inner.parent / "more.py",
        inner / "helper.py",
        inner / "idea.py",
        *(folder / f"{name}.py" for folder in (inner, inner.parent) for name in beside),
    ]:
        before = file.read_text()
        rewrite(file, before + "changed = 2\n")
        counts = file.stem in (read, "idea", "__init__")
        assert (code_of("mine_x.sub.idea") != first) == counts, file
        rewrite(file, before)


def test_code_of_a_run_holds_its_system_and_the_workers_harness():
    ours = {name: code_of("harness.run.train", f"systems.{name}") for name in ("vanilla", "sancus")}
    assert len(set(ours.values())) == 2 and all(len(code) == 12 for code in ours.values())
    assert code_of("harness.run.train") not in ours.values()


def test_code_is_that_of_the_process_and_not_what_its_files_became(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, idea_e="a = 1\n")
    first = code_of("idea_e")
    package(tmp_path, idea_e="a = 2\n")
    assert code_of("idea_e") == first
    rewrite(tmp_path / "idea_e.py", "a = 2\n")
    assert code_of("idea_e") != first


def test_code_imports_nothing_to_find_out(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, explosive="raise SystemExit(3)\n")
    assert code_of("explosive") != code_of("not_there_at_all")


def test_what_was_kept_of_a_file_counts_while_it_is_whole_and_the_file_the_same(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package(tmp_path, idea_p="more = abs\n")
    first = code_of("idea_p")
    (kept,) = (tmp_path / "__pycache__").glob("*.code")
    rewrite(tmp_path / "idea_p.py", "more = sum\n")  # as long as before
    assert code_of("idea_p") != first
    for damaged in ("", "x", "\0"):
        kept.write_text(damaged)
        rewrite(tmp_path / "idea_p.py", "more = abs\n")
        assert code_of("idea_p") == first
