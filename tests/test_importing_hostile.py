"""Files made to do harm, given to `halobench import`: each is one sentence, and nothing is left behind."""

import gzip
import os
import signal
import time
import warnings
import zipfile

import numpy as np
import pytest
import torch

from harness.base.errors import InputError
from harness.base.heap import give_back_freed_memory
from harness.data.importing import apart
from tests.importing import imported, loaded, refused, sample, tensors_of, write

GRAPH = sample(weighted=True)
EDGES = GRAPH.num_edges


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(16, 2), 0.1, 0, torch.quint8)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


KINDS = {
    "weights of another length": ("edge_weight", lambda: torch.ones(EDGES + 1), "give one number per edge"),
    "meta": ("x", lambda: torch.ones(16, 2, device="meta"), "float32 on meta: give a dense tensor"),
    "quantised": ("x", quantised, "a Tensor, torch.strided of torch.quint8 on cpu"),
    "complex": ("x", lambda: torch.ones(16, 2, dtype=torch.complex64), "torch.strided of torch.complex64"),
    "a complex mask": ("val_mask", lambda: torch.ones(16, dtype=torch.complex64), "of real numbers"),
    "nested": ("x", nested, "nested"),
    "CSR": ("x", lambda: torch.eye(16).to_sparse_csr(), "a Tensor, torch.sparse_csr"),
    "sparse": ("x", lambda: torch.sparse_coo_tensor(size=(16, 10**8)), "x is a Tensor, torch.sparse_coo"),
    "expanded": ("x", lambda: torch.ones(1).expand(16, 10**8), "would take 6.4 GB of memory"),
    "text": ("y", lambda: "labels", "y is a str"),
    "a mask of another length": ("val_mask", lambda: torch.ones(3, dtype=torch.bool), "for 16 vertices"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_of_a_kind_that_is_no_array_is_one_sentence(tmp_path, capsys, kind):
    key, made, says = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save({**tensors_of(GRAPH), key: made()}, tmp_path / "a.pt")
    assert says in refused(tmp_path, capsys, "pyg", tmp_path / "a.pt")


@pytest.mark.parametrize(
    "change", [lambda x: x.to(torch.bfloat16), lambda x: x.requires_grad_(), lambda x: torch._neg_view(-x)]
)
def test_a_tensor_that_is_another_view_of_its_numbers_is_read(tmp_path, capsys, change):
    given = tensors_of(GRAPH)
    numbers = given["x"].to(torch.bfloat16).float()
    torch.save({**given, "x": change(numbers.clone())}, tmp_path / "a.pt")
    imported(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    np.testing.assert_array_equal(loaded(tmp_path / "g.npz").features, numbers.numpy())


def test_a_pickle_that_overruns_the_stack_ends_no_more_than_its_reader(tmp_path, capsys):
    """A dict whose key is tuples inside each other, more than can be hashed."""
    torch.save({"x": 1}, tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "a.pt", "w") as made:
        for name in whole.namelist():
            nested = b"\x80\x02}(" + b")" + b"\x85" * 400_000 + b"K\x01u."
            made.writestr(name, nested if name.endswith("data.pkl") else whole.read(name))
    refused(tmp_path, capsys, "pyg", tmp_path / "a.pt")


def test_a_table_that_unpacks_to_more_than_may_be_is_refused(tmp_path, capsys, monkeypatch):
    give_back_freed_memory()  # of the tests before, with which the process that reads would need no more
    monkeypatch.setattr(apart, "MEMORY", 64 << 20)
    monkeypatch.setattr(apart, "EXPANSION", 1)
    with gzip.open(tmp_path / "edges.csv.gz", "wb") as file:
        file.write(b"1,1\n" * (1 << 21))
    arguments = write(tmp_path)
    assert (tmp_path / "edges.csv.gz").stat().st_size < 100_000
    said = refused(tmp_path, capsys, "edges", tmp_path / "edges.csv.gz", *arguments[2:])
    assert "memory" in said and "edges.csv.gz" in said


def test_names_out_of_a_file_are_shown_printably_and_on_one_line(tmp_path, capsys):
    """In the summary, and in a refusal."""
    evil = "\x1b[31m\u202e"
    (tmp_path / "x.csv").write_text("id,x,label\n" + "".join(f"{v},{v}.0,{evil}{v % 2}\n" for v in range(6)))
    edges = tmp_path / "edges.csv"
    edges.write_text("".join(f"{v},{v - 1}\n" for v in range(1, 6)))
    what = ("edges", edges, "--features", tmp_path / "x.csv")
    said = imported(tmp_path, capsys, *what)
    assert r"\x1b[31m\u202e0" in said and "\x1b" not in said and "\u202e" not in said
    edges.write_text(f"0,1\n1,{evil}\n")
    said = refused(tmp_path, capsys, *what)
    assert r"\x1b[31m" in said and "\x1b" not in said


# -- the process that reads --


def lines(work):
    return apart.apart(work, "a.pt", [])


def test_its_lines_and_its_refusal_come_back():
    assert lines(lambda: ["a", "b\x1b"]) == ["a", "b\\x1b"]
    with pytest.raises(InputError, match=r"^x\\ny$"):
        lines(lambda: (_ for _ in ()).throw(InputError("x\ny")))


@pytest.mark.parametrize("work, says", [
    (lambda: os.kill(os.getpid(), signal.SIGSEGV), "ended the process that read it .SIGSEGV"),
    (lambda: os._exit(3), "ended the process that read it .exit code 3"),
    (lambda: [str(len(np.empty(1 << 30)))], "asks for more than .* GB of memory"),
    (lambda: 1 / 0, "cannot be imported .ZeroDivisionError: division by zero"),
    (lambda: ["x" * (1 << 15)] * 300, "has more to tell than may be"),
], ids=["crash", "exit", "memory", "error", "flood"])  # fmt: skip
def test_what_goes_wrong_there_is_one_sentence(work, says):
    with pytest.raises(InputError, match=f'"a.pt" {says}'):
        lines(work)


def test_more_time_than_a_file_of_this_size_needs_is_refused(monkeypatch):
    monkeypatch.setattr(apart, "SECONDS", 1)

    def forever():
        while True:
            pass

    began = time.process_time()
    with pytest.raises(InputError, match=r'"a.pt" takes more than 1 s of a processor'):
        lines(forever)
    assert time.process_time() - began < 1, "it was the other process that worked"


def test_what_it_prints_goes_nowhere(capfd):
    assert lines(lambda: [str(os.write(2, b"\x1b[31m"))]) == ["5"]
    assert capfd.readouterr() == ("", "")
