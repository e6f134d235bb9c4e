"""The real data sets: where torch_geometric and ogb keep their raw files, who reads them, who
downloads them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.base.scratch import scratch
from harness.check import InputError
from harness.check.extras import package
from harness.graph import download
from harness.graph.attributed import read_attributed, read_heterophilous
from harness.graph.ogb import read_binary, read_edge_features, read_tables
from harness.graph.planetoid import PARTS, read_planetoid
from harness.graph.raw import Raw
from harness.graph.saint import read_reddit, read_saint


@dataclass(frozen=True)
class Source:
    """One data set.

    folders    where its files may lie under data_dir, in any case; the first is where a download puts them
    files      what `read` takes, in its order, relative to the folder
    read       (*paths, symmetrise=...) -> Raw
    library    who downloads it where there is no url: "torch_geometric.datasets" class or "ogb"; arguments of
               the class beside root
    url        where its files are, each under its own name; "" where only a library can fetch them (Google
               Drive, zip archives)
    own_split  whether the files hold splits
    twin       whether there is a synthetic twin of the same name
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]
    read: Callable[..., Raw]
    library: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    url: str = ""
    own_split: bool = True
    twin: bool = False


# Where the authors keep the files of these torch_geometric classes.
URLS = {
    "Amazon": "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
    "CitationFull": "https://github.com/abojchevski/graph2gauss/raw/master/data/",
    "Coauthor": "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
    "HeterophilousGraphDataset": "https://github.com/yandex-research/heterophilous-graphs/raw/main/data/",
    "Planetoid": "https://github.com/kimiyoung/planetoid/raw/master/data/",
}


def _saint(library: str, *folders: str) -> Source:
    files = ("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json")
    return Source((library, *folders), files, read_saint, library, twin=True)


def _attributed(library: str, folder: str, file: str, *folders: str, twin: bool = False) -> Source:
    everywhere = (folder, f"{library}/{folder}", *folders)
    return Source(
        everywhere, (f"raw/{file}",), read_attributed, url=URLS[library], own_split=False, twin=twin
    )


def _planetoid(name: str) -> Source:
    files = tuple(f"raw/ind.{name.lower()}.{part}" for part in PARTS)
    return Source((name, f"Planetoid/{name}"), files, read_planetoid, url=URLS["Planetoid"])


def _ogb(name: str, split: str, read: Callable[..., Raw], *files: str) -> Source:
    split_files = tuple(f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test"))
    folders = (name.replace("-", "_"), name)
    everywhere = (*folders, *(f"ogb/{folder}" for folder in folders))
    return Source(everywhere, (*files, *split_files), read, "ogb", {"name": name}, twin=True)


_TABLES = ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz")

DATASETS = {
    "reddit": Source(
        ("Reddit",), ("raw/reddit_data.npz", "raw/reddit_graph.npz"), read_reddit, "Reddit", twin=True
    ),
    "reddit2": _saint("Reddit2"),
    "flickr": _saint("Flickr"),
    "yelp": _saint("Yelp"),
    "amazon-products": _saint("AmazonProducts", "amazon-products", "amazon_products", "Amazon"),
    # CitationFull keeps its "cora" in a folder that Planetoid's Cora may share; the file names tell them
    # apart.
    "corafull": _attributed(
        "CitationFull", "cora", "cora.npz", "CoraFull", "CoraFull/cora", "cora_full", twin=True
    ),
    "coauthor-physics": _attributed("Coauthor", "Physics", "ms_academic_phy.npz", twin=True),
    "coauthor-cs": _attributed("Coauthor", "CS", "ms_academic_cs.npz"),
    "amazon-computers": _attributed("Amazon", "Computers", "amazon_electronics_computers.npz"),
    "amazon-photo": _attributed("Amazon", "Photo", "amazon_electronics_photo.npz"),
    "cora": _planetoid("Cora"),
    "citeseer": _planetoid("CiteSeer"),
    "pubmed": _planetoid("PubMed"),
    "dblp": _attributed("CitationFull", "dblp", "dblp.npz"),
    "tolokers": Source(
        ("tolokers", "HeterophilousGraphDataset/tolokers"),
        ("raw/tolokers.npz",),
        read_heterophilous,
        url=URLS["HeterophilousGraphDataset"],
    ),
    "ogbn-arxiv": _ogb("ogbn-arxiv", "time", read_tables, *_TABLES),
    "ogbn-products": _ogb("ogbn-products", "sales_ranking", read_tables, *_TABLES),
    "ogbn-proteins": _ogb(
        "ogbn-proteins",
        "species",
        read_edge_features,
        "raw/edge.csv.gz",
        "raw/edge-feat.csv.gz",
        "raw/node-label.csv.gz",
    ),
    "ogbn-papers100m": _ogb("ogbn-papers100M", "time", read_binary, "raw/data.npz", "raw/node-label.npz"),
}
# Other names under which a file is passed around.
ALIASES = {"raw/cora.npz": "raw/cora_full.npz"}


def find(name: str, data_dir: Path) -> tuple[Path, ...]:
    """The raw files of data set `name`, found in `data_dir` or else downloaded there.

    Raises InputError naming the missing file, where to put it and the twin to take instead.
    """
    source = DATASETS[name]
    if found := _complete(source, data_dir):
        return found
    try:
        _download(source, data_dir)
        reason = "the download lacks it"
    except Exception as error:  # the library's, the network's or the disk's: each leaves the file missing
        reason = f"downloading it failed: {' '.join(str(error).split())[:200] or type(error).__name__}"
    if found := _complete(source, data_dir):
        return found
    missing = _first_missing(source, data_dir)
    twin = f", or take the synthetic twin with dataset=twin/{name}" if source.twin else ""
    raise InputError(
        f'{name}: file "{missing}" is missing from data_dir="{data_dir}" ({reason}); put it there{twin}'
    )


def present(name: str, data_dir: Path) -> bool:
    """Whether every raw file of data set `name` is in `data_dir`; nothing is downloaded."""
    return _complete(DATASETS[name], data_dir) is not None


def read(name: str, paths: tuple[Path, ...], symmetrise: bool) -> Raw:
    return DATASETS[name].read(*paths, symmetrise=symmetrise)


def _complete(source: Source, data_dir: Path) -> tuple[Path, ...] | None:
    for folder in _existing(source, data_dir):
        paths = [path for file in source.files if (path := _file(folder, file)) is not None]
        if len(paths) == len(source.files):
            return tuple(paths)
    return None


def _existing(source: Source, data_dir: Path) -> list[Path]:
    """The candidate folders that exist, whatever the case of their letters."""
    found = []
    for candidate in source.folders:
        folders = [data_dir]
        for part in candidate.split("/"):
            folders = [
                child
                for folder in folders
                for child in _folders(folder)
                if child.name.lower() == part.lower()
            ]
        found += [folder for folder in folders if folder not in found]
    return found


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir())
    except OSError:  # not there, or not for this user: nothing to find
        return []


def _file(folder: Path, name: str) -> Path | None:
    for variant in (name, ALIASES.get(name, name)):
        if (folder / variant).is_file():
            return folder / variant
    return None


def _first_missing(source: Source, data_dir: Path) -> str:
    """Relative to data_dir; in a folder that holds some of the files, else in the usual one."""
    for folder in _existing(source, data_dir):
        there = [_file(folder, file) is not None for file in source.files]
        if any(there):
            return f"{folder.relative_to(data_dir)}/{source.files[there.index(False)]}"
    return f"{source.folders[0]}/{source.files[0]}"


def _download(source: Source, data_dir: Path) -> None:
    """Fetch the raw files into a folder of its own, hold them to their checksums, then move each into place,
    at once and whole.
    """
    folder = source.folders[0]
    created = not data_dir.exists()
    data_dir.mkdir(parents=True, exist_ok=True)
    try:
        with scratch(parent=data_dir, prefix=".download.") as beside:
            if source.url:
                fetched = beside
                known = download.expected(data_dir, folder, source.files)
                download.fetch(source.url, source.files, known, fetched)
            elif source.library == "ogb":
                fetched = _fetch_ogb(source, beside)
            else:
                fetched = _fetch_torch_geometric(source, beside)
            download.hold(data_dir, folder, fetched, source.files)
            for file in sorted(path for path in fetched.rglob("*") if path.is_file()):
                target = data_dir / folder / file.relative_to(fetched)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, target)
    finally:
        if created:
            (data_dir / f".{download.KEPT}.lock").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # no longer empty: the download came through
                data_dir.rmdir()


def _fetch_torch_geometric(source: Source, root: Path) -> Path:
    """Run the class's download step alone: its processing would need the whole graph again, and write it."""
    datasets = package("torch_geometric.datasets", "download")  # heavy, and needed for downloads only
    cls = getattr(datasets, source.library)
    dataset = cls.__new__(cls)
    dataset.root = str(root)
    for key, value in source.arguments.items():
        setattr(dataset, key, value)
    Path(dataset.raw_dir).mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(sys.stderr):
        dataset.download()
    return Path(dataset.raw_dir).parent


def _fetch_ogb(source: Source, root: Path) -> Path:
    import pandas as pd
    from ogb import nodeproppred
    from ogb.utils import url

    master = pd.read_csv(
        Path(nodeproppred.__file__).parent / "master.csv", index_col=0, keep_default_na=False
    )
    about = master[source.arguments["name"]]
    with contextlib.redirect_stdout(sys.stderr):
        archive = url.download_url(about["url"], str(root))
        url.extract_zip(archive, str(root))
    os.unlink(archive)
    return root / about["download_name"]
