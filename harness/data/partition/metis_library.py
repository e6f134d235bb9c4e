"""METIS as the package cmeel-metis brings it (METIS 5.2, 32-bit ids), with several weights per vertex and all
of its options; pymetis passes one weight and some options. Installed by `pip install halobench[balance]`."""

import ctypes
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from harness.base.errors import InputError

# The place of each option in METIS 5.2's array of options, the length of that array, and the code of success.
PLACES = {"niparts": 6, "niter": 7, "seed": 9, "ondisk": 11, "dropedges": 20}
OPTIONS, OK = 40, 1
MEND = 'give partition=metis, or pip install "halobench[balance]"'


def kway(
    starts: np.ndarray,
    neighbours: np.ndarray,
    weights: np.ndarray,
    parts: int,
    seed: int,
    what: str,
    options: Mapping[str, int] | None = None,
) -> np.ndarray:
    """[V] int32: the parts of METIS's k-way algorithm. Parts may be empty.

    starts [V + 1], neighbours   int32: the undirected pattern without self-loops
    weights [V, c] int32         what each vertex weighs in each constraint
    what                         the field that messages name, with its value
    options                      METIS's options by their names in `PLACES`; others are left at its defaults

    Raises InputError where METIS cannot be loaded, or finds no answer."""
    metis, vertices = library(what), len(starts) - 1
    # METIS reads a seed in 31 bits; as for partition=metis, its seeds begin at 1.
    values = np.empty(OPTIONS, np.int32)
    metis.METIS_SetDefaultOptions(_pointer(values))
    for name, value in {**(options or {}), "seed": seed % (2**31 - 1) + 1}.items():
        values[PLACES[name]] = value
    owners, cut = np.empty(vertices, np.int32), ctypes.c_int32()
    numbers = [ctypes.byref(ctypes.c_int32(n)) for n in (vertices, weights.shape[1], parts)]
    code = metis.METIS_PartGraphKway(
        numbers[0], numbers[1], _pointer(starts), _pointer(neighbours), _pointer(weights), None, None,
        numbers[2], None, None, _pointer(values), ctypes.byref(cut), _pointer(owners),
    )  # fmt: skip
    if code != OK:
        raise InputError(
            f"{what} could not be computed: METIS gave the code {code}; give fewer constraints, or"
            " partition=metis"
        )
    return owners


def library(what: str) -> ctypes.CDLL:
    """The loaded library METIS. Raises InputError, saying that `what` needs it, where it cannot be loaded."""
    try:
        # METIS takes GKlib's symbols from the process.
        ctypes.CDLL(str(_file("cmeel-gklib", "libGKlib")), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(_file("cmeel-metis", "libmetis")))
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        raise InputError(f"{what} needs METIS of cmeel-metis ({error}); {MEND}") from None


def _file(package: str, name: str) -> Path:
    found = [path for path in importlib.metadata.files(package) or [] if path.name.startswith(name)]
    if not found:
        raise OSError(f"{package} has no {name}")
    return Path(str(found[0].locate()))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
