"""Pieces from outside the tree: each is one file on the Python path and one yaml, as its page shows it."""

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import yaml

from harness.base.errors import InputError
from harness.base.target import made
from harness.core.kernels.numba_kernel import NumbaProduct
from harness.core.kernels.spmm import Kernel, make_kernel
from harness.data.dataset import Dataset, identity_of
from harness.data.partition.assign import Block
from harness.data.partition.cache import Cache, shards_for
from harness.data.partition.config import Partitioner
from harness.results import resolved
from harness.results.reader import Trace
from harness.run import config
from tests.conftest import ROOT
from tests.graphs import random_graph
from tests.oracles.samples import with_edge_weights


def shown(page: str, language: str) -> tuple[str, str]:
    """Path below my_ideas, and text, of the only block of a page in `language` that names its file."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(rf"^```{language}\n(\W*my_ideas/(\S+?)\W*\n.*?)^```", text, re.M | re.S)
    assert len(found) == 1
    return found[0][1], found[0][0]


@pytest.fixture
def followed(place):
    """Write down the two files that a page shows, where the commands of `place` find them."""

    def follow(page: str) -> dict:
        name, module = shown(page, "python")
        (place.folder / "modules" / name).write_text(module)
        name, text = shown(page, "yaml")
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return yaml.safe_load(text)

    return follow


def test_a_partitioner_is_one_file_and_one_yaml(place, followed):
    followed("partition.md")
    done = place.run(place.more, "-m", "partition=stripes", "partition.width=2,3", "epochs=2")
    assert done.code == 0, done.err
    found = {config.stored(path)["partition"]["width"]: path for path in place.runs()}
    assert found.keys() == {2, 3}
    folders = {width: config.shard_folder(path) for width, path in found.items()}
    assert folders[2] != folders[3], "another width is another partition"
    spec = json.loads((folders[3] / "spec.json").read_text())["spec"]
    assert (spec["method"], spec["width"]) == ("stripes.Stripes", 3) and spec["code"]
    stats = Trace(found[2]).shards
    assert (stats["inner"], stats["method"]) == ([30, 30], "stripes")
    assert stats["assign_s"] > 0 and stats["edge_cut"] > 0 and "assign_bytes" in stats


def test_a_dataset_is_one_file_and_one_yaml(place, followed):
    followed("data.md")
    done = place.run(place.more, "dataset=ring", "epochs=2")
    assert done.code == 0, done.err
    (run_dir,) = place.runs("ring/*")
    assert sum(Trace(run_dir).shards["inner"]) == 200
    again = place.run(place.more, "-m", "dataset=ring", "dataset.vertices=200,60", "epochs=2")
    assert again.code == 0 and len(place.runs("ring/*")) == 2
    assert again.out.count("finished before") == 1 and "computed by" not in again.out
    refused = place.run(place.more, "dataset=ring", "dataset.vertexes=60")
    assert refused.code == 2 and 'did you mean "vertices"?' in refused.err


@dataclass
class Filed(Dataset):
    knob: int = 1

    def load(self, data_dir, seed):
        return "no graph"

    def files(self, data_dir):
        return [data_dir / "raw.txt"]


def test_the_fingerprint_of_a_dataset_has_its_fields_seed_code_and_files(tmp_path):
    (tmp_path / "raw.txt").write_text("a")
    base = Filed("mine").fingerprint(tmp_path, 1)
    assert base["code"] and base["files"] == {"raw.txt": identity_of(tmp_path / "raw.txt")}
    assert base == json.loads(json.dumps(base)) == Filed("mine").fingerprint(tmp_path, 1)
    assert Filed("mine", knob=2).fingerprint(tmp_path, 1) != base != Filed("mine").fingerprint(tmp_path, 2)
    (tmp_path / "raw.txt").write_text("b")
    assert Filed("mine").fingerprint(tmp_path, 1) != base
    (tmp_path / "raw.txt").unlink()
    with pytest.raises(InputError, match=r'raw.txt" cannot be read: No such file or directory; put it there'):
        Filed("mine").fingerprint(tmp_path, 1)
    (tmp_path / "raw.txt").mkdir()
    with pytest.raises(InputError, match=r'raw.txt" cannot be read: Is a directory; make it a file'):
        Filed("mine").fingerprint(tmp_path, 1)
    with pytest.raises(InputError, match='dataset "mine" gave a str; its load must return a'):
        Filed("mine").graph(tmp_path, 1)


@dataclass
class Two(Filed):
    """Two files of one name."""

    def load(self, data_dir, seed):
        return (data_dir / "absent").read_text()

    def files(self, data_dir):
        return [data_dir / "a" / "edges.csv", data_dir / "b" / "edges.csv"]


def test_the_fingerprint_of_a_dataset_has_each_of_two_files_of_one_name(tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "edges.csv").write_text("0,1")
    found = [Two("mine").fingerprint(tmp_path, 1)]
    for folder in "ab":
        (tmp_path / folder / "edges.csv").write_text("0,2")
        found.append(Two("mine").fingerprint(tmp_path, 1))
    assert len({str(each) for each in found}) == 3


def test_a_file_that_a_dataset_lacks_is_not_blamed_on_the_cache(tmp_path):
    load, data = Two("mine").graph, tmp_path / "data"
    with pytest.raises(InputError, match='dataset "mine": .*data/absent cannot be used: No such file'):
        shards_for(Cache(tmp_path), {}, lambda: load(data, 1), Block(), 2, 1)


class Held(Dataset):
    """Gives the graph that it is made with."""

    def __init__(self, held):
        super().__init__("mine")
        self.held = held

    def load(self, data_dir, seed):
        return self.held


def test_a_graph_that_is_called_symmetric_and_is_not_is_refused(tmp_path):
    directed, weighted = random_graph(20, 3, symmetric=False), with_edge_weights(random_graph(20, 3), 0)
    uneven = weighted.replace(weights=np.arange(1, weighted.num_edges + 1, dtype=np.float32))
    for sound in (directed, weighted):
        assert Held(sound).graph(tmp_path, 1) is sound
    for wrong in (directed.replace(symmetric=True), uneven):
        with pytest.raises(InputError, match="symmetric is true, but not every edge has its reverse"):
            Held(wrong).graph(tmp_path, 1)


class OnHost(Kernel):
    def check(self, device):
        if device.type != "cpu":
            raise InputError(f"kernel={self.name} runs on the CPU only; give kernel=torch")

    def prepare(self, block, values, device):
        return NumbaProduct(block, values)


class Lacking(Kernel):
    pass


def test_a_kernel_is_a_class_that_its_name_imports(place):
    (place.folder / "modules" / "fast.py").write_text(
        "from harness.core.kernels.spmm import Kernel, NumbaKernel\n\n\nclass Fast(NumbaKernel):\n    pass\n"
    )
    assert place.run("kernel=fast.Fast", "epochs=2").code == 0
    (run_dir,) = place.runs()
    assert resolved.read(run_dir)["attempts"][0]["kernel"] == "fast.Fast"
    kernel = make_kernel("tests.test_outside.OnHost")
    assert kernel.name == "tests.test_outside.OnHost"
    with pytest.raises(InputError, match=r"kernel=tests.test_outside.OnHost runs on the CPU only"):
        make_kernel("tests.test_outside.OnHost", torch.device("cuda"))


@pytest.mark.parametrize(
    "name, said",
    [
        ("tests.nowhere.Fast", r'kernel="tests.nowhere.Fast" cannot be imported'),
        ("../..", r'kernel="../.." does not begin with a module: give MODULE.CLASS'),
        (
            "tests.test_outside.Filed",
            "is not a Kernel; derive the class from harness.core.kernels.spmm.Kernel",
        ),
        ("tests.test_outside.Lacking", 'kernel="tests.test_outside.Lacking" lacks the method prepare'),
    ],
)
def test_a_kernel_that_is_none_is_refused_before_a_worker_starts(name, said):
    with pytest.raises(InputError, match=said):
        config.RunConfig(kernel=name)


@pytest.mark.parametrize(
    "target, base, said",
    [
        ("", Partitioner, 'block._target_="" cannot be imported'),
        ("tests.test_outside.Filed", Partitioner, "is not a Partitioner; derive the class from harness.data"),
        ("harness.data.dataset.Dataset", Dataset, r"lacks the method load\(self, data_dir, seed\)"),
        ("tests.test_outside.Filed", Dataset, "names no graph"),
    ],
)
def test_a_target_that_cannot_be_used_is_one_sentence(target, base, said):
    block = {"_target_": target, **({"name": ""} if base is Dataset else {})}
    with pytest.raises(InputError, match=said):
        made(block, "block", base)
