"""The kinds of the values in the small files of a run folder, as far as readers rely on them. A folder that
came from somebody else may hold a list where a number is wanted, in a file whose checksum is right."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.base.errors import InputError, first_line
from harness.base.machine import check_machine
from harness.results.files import read_json
from harness.results.schema import AUTO, SCHEMA_VERSION, check_version

Kinds = tuple[type, ...]
TEXT, WHOLE, NUMBER, YES, BLOCK, LIST = (str,), (int,), (int, float), (bool,), (dict,), (list,)
NONE = (type(None),)
WORDS: dict[type, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a block of keys",
    list: "a list", type(None): "null",
}  # fmt: skip
BLOCKS = ("system", "dataset", "partition", "model", "optimiser", "schedule", "evaluate", "cluster", "score",
          "combine", "straggler", "labels")  # fmt: skip
ATTEMPT = "attempts.*."
# The keys that a file must have.
NEEDED = {
    "config.yaml": ("system", "dataset"),
    "environment.json": ("processor", "cores"),
    "summary.json": ("epochs", "diverged"),
    "resolved.json": ("attempts", *(ATTEMPT + name for name in ("first_epoch", *AUTO))),
}
# By file and key; "*" is each element of a list, or each value of a block. A key may be absent.
KINDS: dict[str, dict[str, Kinds]] = {
    "config.yaml": {
        **dict.fromkeys(BLOCKS, BLOCK),
        **{f"{block}._target_": TEXT for block in BLOCKS},
        **dict.fromkeys(("dataset.name", "dataset.source", "dataset.path"), TEXT + NONE),
        **dict.fromkeys(("model.name", "cluster.name"), TEXT + NONE),
        **dict.fromkeys(("gpus", "epochs"), WHOLE + NONE),
        "workers": WHOLE,
        "evaluate.patience": WHOLE,
        "seed": WHOLE + TEXT + NONE,
        **dict.fromkeys(("label", "data_dir", "cache", "results", "run_dir", "device"), TEXT + NONE),
    },
    "summary.json": {
        "epochs": WHOLE,
        "files": BLOCK,
        "files.*": TEXT,
        "diverged": WHOLE + NONE,
        **dict.fromkeys(("score", "clock", "dataset"), TEXT),
        **dict.fromkeys(("final", "best"), BLOCK + NONE),
        **{f"{at}.*": NUMBER + NONE + BLOCK for at in ("final", "best")},
        **dict.fromkeys(("scores", "notes"), LIST),
        **dict.fromkeys(("scores.*", "notes.*"), TEXT),
        "bytes_epoch": BLOCK,
        "bytes_epoch.*": NUMBER,
    },
    "environment.json": {
        "processor": TEXT,
        "cores": WHOLE,
        "gpus": LIST + NONE,
        "gpus.*": TEXT,
        "hosts": LIST + NONE,
        "hosts.*": BLOCK,
        "packages": BLOCK,
        **dict.fromkeys(("revision", "code"), TEXT + NONE),
    },
    "resolved.json": {
        **dict.fromkeys(("role", "combine", "run"), TEXT),
        "steps": WHOLE,
        **dict.fromkeys(("asynchronous", "devices", "overlaps"), YES),
        "knobs": BLOCK,
        "attempts": LIST,
        "attempts.*": BLOCK,
        f"{ATTEMPT}first_epoch": WHOLE,
        f"{ATTEMPT}threads": WHOLE,
        **{f"{ATTEMPT}{name}": TEXT + NONE for name in ("device", "transport", "kernel", "machine", "code")},
    },
    "shards.json": {
        "folder": TEXT,
        "stats": BLOCK,
        **dict.fromkeys(("stats.vertices", "stats.train", "stats.classes"), NUMBER + NONE),
        "stats.graph": TEXT + NONE,
        "stats.majority": BLOCK + NONE,
        "stats.majority.*": NUMBER + NONE,
        "graph": BLOCK + NONE,
        "graph.files": BLOCK,
        "graph.files.*": BLOCK,
        "tilings": BLOCK,
        "tilings.*": LIST,
        "tilings.*.*": BLOCK,
        **{f"tilings.*.*.{name}": WHOLE for name in ("lines", "ahead", "block")},
        "tilings.*.*.ns": NUMBER,
        "costs": BLOCK + NONE,
        **{f"costs.{name}{each}": kind for name in ("sparse", "dense")
           for each, kind in (("", LIST), (".*", LIST), (".*.*", NUMBER))},
    },
}  # fmt: skip


def read(path: Path, mend: str) -> dict[str, Any]:
    """The object in a file of JSON. InputError where the file cannot be read, is of another schema version,
    or `check` refuses its content.

    mend    what the user can do, the end of the error's sentence
    """
    try:
        value = read_json(path)
    except (OSError, ValueError) as error:
        check_machine(error, path)
        raise InputError(f"{path} cannot be read ({first_line(error)}); {mend}") from None
    if isinstance(value, dict):
        check_version(value.get("schema", SCHEMA_VERSION), path)
    check(path, value, mend)
    found: dict[str, Any] = value
    return found


def check(path: Path, value: Any, mend: str) -> None:
    """InputError where what a file holds is no block of keys, lacks one of NEEDED, or has a value of another
    kind than KINDS names.

    path    the file; its name chooses the keys
    mend    as `read` takes it
    """
    if not isinstance(value, dict):
        raise InputError(f"{path} is damaged: it does not hold a block of keys; {mend}")
    for key in NEEDED.get(path.name, ()):
        block, _, name = key.rpartition(".")
        for _, held in _at(value, block.split(".") if block else []):
            if isinstance(held, dict) and name not in held:
                raise InputError(f"{path} is damaged: it lacks {key.replace('*.', '')}; {mend}")
    for key, kinds in KINDS.get(path.name, {}).items():
        for name, found in _at(value, key.split(".")):
            if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
                wanted = " or ".join(WORDS[kind] for kind in kinds)
                raise InputError(f"{path} is damaged: its {name}={str(found)[:60]} is not {wanted}; {mend}")


def as_text(config: dict[str, Any]) -> dict[str, Any]:
    """A composed config in which numbers and truth values given for a text, as in label=2024, are texts."""
    made = dict(config)
    for key in (key for key, kinds in KINDS["config.yaml"].items() if kinds[:1] == TEXT):
        block, _, name = key.rpartition(".")
        at = made.get(block) if block else made
        if isinstance(at, dict) and isinstance(at.get(name), int | float):
            if block:
                made[block] = at = {**at}
            at[name] = str(at[name])
    return made


def _at(value: Any, parts: list[str], name: str = "") -> Iterator[tuple[str, Any]]:
    """The values at a key (`parts`, split at its dots), each with the name of its place."""
    if not parts:
        yield name, value
        return
    inside = dict(enumerate(value)) if isinstance(value, list) else value if isinstance(value, dict) else {}
    for key in inside if parts[0] == "*" else [key for key in parts[:1] if key in inside]:
        yield from _at(inside[key], parts[1:], f"{name}.{key}" if name else str(key))
