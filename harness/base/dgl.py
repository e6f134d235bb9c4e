"""Everything that loading DGL 2.1.0 under a newer torch takes.

DGL's graphbolt is a binary built for one torch version and fails to load under any other; nothing here needs
it, so an empty module stands in its place. By default, importing DGL also prints two lines and writes a file
into the home directory; it does neither where DGLBACKEND is set before."""

import os
import sys
import types
import warnings


def load_dgl() -> types.ModuleType | None:
    """The `dgl` module, or None where it is not installed or cannot be loaded."""
    if "dgl" in sys.modules:
        return sys.modules["dgl"]
    before = os.environ.get("DGLBACKEND")
    os.environ["DGLBACKEND"] = "pytorch"
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import dgl
            import dgl._sparse_ops
            import dgl.heterograph_index
        module: types.ModuleType = dgl
        return module
    # missing, a library that cannot be loaded, a torch too new
    except (ImportError, OSError, AttributeError):
        for name in [name for name in sys.modules if name == "dgl" or name.startswith("dgl.")]:
            del sys.modules[name]
        return None
    finally:
        del os.environ["DGLBACKEND"]  # or child processes would have it
        if before is not None:
            os.environ["DGLBACKEND"] = before
