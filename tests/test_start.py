"""What a start does without: modules that neither the command nor its workers import before the first epoch
is in the trace, and what stands in their place.
"""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.results.batch import record_batch
from harness.results.schema import TABLES
from tests.launching import fresh_python

# Each costs a start a tenth of a second or more.
LATER = (
    "IPython dgl fsspec matplotlib networkx optuna pandas sklearn submitit sympy torch._dynamo.eval_frame"
    " torch._inductor torch_geometric"
)
# Every worker says which of some modules are loaded when its epochs have been traced.
RUN = """
import sys
from harness.cli import main
from harness.results.writer import TraceWriter

modules, folder, *words = sys.argv[1:]
close = TraceWriter.close

def told(self):
    with open(f"{folder}/loaded{self.worker}", "w") as file:
        print(*(name for name in modules.split() if name in sys.modules), file=file)
    close(self)

TraceWriter.close = told
sys.exit(main(words))
"""


def test_no_start_waits_for_what_comes_later(tmp_path):
    words = "system=vanilla dataset=twin/flickr dataset.scale=0.002 workers=2 epochs=2 partition=random"
    folders = f"cache={tmp_path}/cache", f"run_dir={tmp_path}/run"
    done = fresh_python(RUN, f"numba {LATER}", tmp_path, *words.split(), "progress=false", *folders)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(tmp_path / f"loaded{worker}").read_text() for worker in (0, 1)] == ["numba\n"] * 2


WITHOUT_TORCH = """
import sys
import harness.cli.runs
import harness.model.replay.__main__
from harness.results.report import compare, perfetto, plot, single, table
print("torch" in sys.modules)
"""


def test_reports_replays_and_listings_start_without_torch():
    """Importing it would be more than half of the CPU time of a table of a few runs."""
    assert fresh_python(WITHOUT_TORCH).stdout == "False\n"


COMPILING = """
import inspect, sys, torch
import harness.core.optimisers  # keeps the compiler out

inspect.getmodule(sys._getframe())  # looks at every module's file
assert "torch._dynamo.eval_frame" not in sys.modules
graphs = []

def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

double = torch.compile(lambda x: 2 * x + 1, backend=backend)
assert double(torch.ones(2)).tolist() == [3.0, 3.0] and len(graphs) == 1
"""


@pytest.mark.nightly(15)
def test_the_compiler_comes_when_it_is_asked_for():
    done = fresh_python(COMPILING)
    assert done.returncode == 0, done.stderr


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    """What a column of this type holds, null among it."""
    if pa.types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=4)
    if pa.types.is_struct(kind):
        fields = {field.name: values_of(field.type) for field in kind}
        return st.none() | st.fixed_dictionaries({}, optional=fields)
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        return st.none() | st.integers(-(2**bits), 2**bits - 1)
    if pa.types.is_floating(kind):
        return st.none() | st.floats(width=kind.bit_width, allow_nan=False)
    return st.none() | (st.booleans() if pa.types.is_boolean(kind) else st.text(max_size=5))


def rows_of(schema: pa.Schema) -> st.SearchStrategy:
    """Rows of a table, some of whose keys are left out."""
    columns = {field.name: values_of(field.type) for field in schema}
    return st.lists(st.fixed_dictionaries({}, optional=columns), max_size=10)


@given(data=st.data())
@pytest.mark.parametrize("table", sorted(TABLES))
def test_rows_are_written_as_arrow_writes_them(table, data):
    schema = TABLES[table]
    rows = data.draw(rows_of(schema))
    batch = record_batch(rows, schema)
    batch.validate(full=True)
    assert batch.equals(pa.RecordBatch.from_pylist(rows, schema=schema), check_metadata=True)
    assert all(
        column.null_count == sum(row.get(name) is None for row in rows)
        for name, column in zip(schema.names, batch.columns)
    )


def test_a_number_beyond_its_column_is_refused():
    with pytest.raises(OverflowError):
        record_batch([{"a": 2**31}], pa.schema([("a", pa.int32())]))
