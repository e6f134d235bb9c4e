"""`python -m tests.hooks`: the table of docs/reference/system.md, every hook of a system with who uses it."""

import inspect
import re
from functools import cache
from importlib import import_module

from harness.core import mixins
from harness.core.batches import BatchSystem
from harness.core.propagate import Strategy
from harness.core.system import ReplicaSystem, System
from tests.kept import with_tables
from tests.pages import CONF, ROOT, module_of

PAGE, COMMAND = ROOT / "docs" / "reference" / "system.md", "python -m tests.hooks"
# What few systems derive from beside `System`, or in its stead.
BESIDE = (
    ReplicaSystem,
    BatchSystem,
    mixins.AsynchronousSystem,
    mixins.SeesOutput,
    mixins.OwnLoss,
    mixins.WeighsLoss,
    mixins.KeepsInput,
    mixins.BesideClock,
    mixins.FitsDevices,
    mixins.ComputesOthers,
)


@cache
def systems() -> dict[str, type[System]]:
    """The class of each system in the tree, by its name."""
    found = {}
    for path in sorted(CONF.glob("*.yaml")):
        module = module_of(path.read_text(), ROOT)
        name = ".".join(module.relative_to(ROOT).with_suffix("").parts)
        target = next(line for line in path.read_text().splitlines() if line.startswith("_target_"))
        found[path.stem] = getattr(import_module(name), target.split("#")[0].strip().rpartition(".")[2])
    return found


def attributes() -> dict[str, str]:
    """Class attributes of the contract, each with its comment: at the end of its line, or on those above."""
    lines, noted, above = inspect.getsource(System).splitlines(), {}, ""
    for line in lines:
        if line.startswith(("    def ", "    @")):
            break
        if comment := re.fullmatch(r"    # (.*)", line):
            above = f"{above} {comment[1]}".strip()
        elif found := re.match(r"    ([a-z]\w*): .*?(?:  # (.*))?$", line):
            noted[found[1]] = found[2] or above or noted[next(reversed(noted))]
            above = ""
        else:
            above = ""
    return noted


def methods(cls: type) -> dict[str, str]:
    """What each method says that a class defines and a system may define anew, in the code's order."""
    return {
        name: " ".join((value.__doc__ or "").strip().split("\n\n")[0].split())
        for name, value in vars(cls).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, (property, classmethod)))
    }


def hooks() -> dict[str, str]:
    """What each method and each class attribute of `System` says."""
    return {**methods(Strategy), **methods(System), **attributes()}


def users(hook: str) -> list[str]:
    """Systems of the tree that say something of their own, in their class or in a part of systems/."""
    return [
        name
        for name, cls in systems().items()
        if any(hook in vars(each) for each in cls.__mro__ if each.__module__.startswith("systems"))
    ]


def named(hook: str) -> str:
    """The systems that use a hook, or "all but" those that do not where these are fewer."""
    used = users(hook)
    rest = [name for name in systems() if name not in used]
    shorter, before = (rest, "all but ") if len(rest) < len(used) else (used, "")
    return before + ", ".join(f"`{name}`" for name in shorter)


def table() -> str:
    rows = ["| hook | what it says | used by |", "|---|---|---|"]
    for hook, said in hooks().items():
        rows.append(f"| `{hook}` | {said} | {named(hook)} |")
    rows += ["", "| class | hook | what it says | used by |", "|---|---|---|---|"]
    for cls in BESIDE:
        for hook, said in methods(cls).items():
            if hook not in hooks():
                rows.append(f"| `{cls.__name__}` | `{hook}` | {said} | {named(hook)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(), COMMAND, table()))
