"""Names that are markup, mathematics or a terminal's commands elsewhere stand here as they were given."""

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from rich.table import Table

from harness.base.errors import InputError
from harness.base.terminal import Terminal
from harness.comm.backend import Layout
from harness.comm.redis_store import Redis
from harness.comm.service import ServiceLost
from harness.results import files
from harness.results.reader import Trace
from harness.results.report import plot, style
from harness.results.report.__main__ import main
from harness.run import progress
from tests import traces
from tests.reported import section_of
from tests.test_config_refused import accept

ODD = r"[/b] $\foo$ :smile: [bold]x"


def test_a_string_is_shown_as_it_is_in_a_line_and_in_a_table():
    console = Terminal(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    table = Table(title=f"title {ODD}")
    table.add_column(f"head {ODD}")
    table.add_row(f"cell {ODD}\x1b]0;owned\x07")
    console.print(table)
    console.print(f"line {ODD}\x9b31m")
    shown = console.file.getvalue()
    for word in ("title", "head", "cell", "line"):
        assert f"{word} {ODD}" in shown
    assert r"\x1b]0;owned\x07" in shown and r"\x9b31m" in shown and "\x07" not in shown


def test_an_error_that_quotes_a_command_for_the_terminal_does_not_give_it():
    assert str(InputError("label=\x1b[31m is not known")) == r"label=\x1b[31m is not known"


def test_a_run_of_an_odd_name_has_a_table_and_pictures(tmp_path, capsys):
    traces.finished(tmp_path / "run", traces.config(label=ODD))
    assert main(["table", str(tmp_path)]) == 0
    assert ODD.split()[0] in capsys.readouterr().out
    section = section_of(tmp_path)
    for figure in plot.pictures(section, style.strokes_of(section.groups)).values():
        figure.draw_without_rendering()


def test_an_odd_name_stands_on_the_bar_of_progress(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    run = SimpleNamespace(
        settings=SimpleNamespace(progress="true", workers=2, epochs=3),
        evaluate=SimpleNamespace(every=1),
        system_name=ODD,
        graph_name="graph",
    )
    with progress.Progress(run, enabled=True):
        pass
    assert "[/b]" in sys.stderr.getvalue()


@pytest.mark.parametrize("key", ["dataset.name", "results"])
def test_a_value_with_a_control_character_is_refused(key):
    more = ["dataset=npz", "dataset.path=x.npz"] if key == "dataset.name" else []
    for value, held in (("\x1b[31mred", r"\\x1b"), ("a\nb", r"\\n")):
        with pytest.raises(InputError, match=rf"{key}=.* holds the control character '{held}'; leave it out"):
            accept(*more, f'{key}="{value}"')


def test_a_config_with_a_control_character_is_no_run_s(tmp_path):
    traces.finished(tmp_path)
    files.write_yaml_atomic(tmp_path / "config.yaml", yaml.safe_dump(traces.config(label="\x1b[31mred")))
    with pytest.raises(InputError, match=r"config.yaml .*a control character: leave it out"):
        Trace(tmp_path).config


@pytest.mark.parametrize(
    "answer",
    [[b"3", b"odd"], [b"x", b"\0" * 16], [b"3", b"\0" * 8], [b"3", b"\0" * 64], [b"3", "text"], [b"3", None]],
)
def test_a_redis_server_that_holds_something_else_is_one_sentence(answer):
    backend = Redis.__new__(Redis)
    backend.address, backend.prefix = "redis://host", "halobench:1"
    rows = [np.arange(2, dtype=np.int32)]
    backend.layout = Layout(0, [4], rows, {1: 2}, 2, np.dtype(np.float32))
    backend.gather = lambda keys, args: answer
    with pytest.raises(ServiceLost, match="holds something else than what was pushed, as a pull of layer 1"):
        backend.read(1, 0, None, np.zeros((2, 2), np.float32))
    backend.server = SimpleNamespace(hgetall=lambda key: {b"0": b"1.5"})
    with pytest.raises(ServiceLost, match="holds something else .* reading stamps"):
        backend.stamps(1)
