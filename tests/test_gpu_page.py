"""What docs/gpu.md and the Dockerfile say to run: the script for SLURM, what submitit submits, commands."""

import os
import re
import stat
import subprocess
import sys

import pytest

from harness.results.reader import Trace
from harness.run.composing import compose
from tests.commands import blocks
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "gpu.md").read_text()
README = (ROOT / "README.md").read_text()
# Stand-ins: `srun` starts a process per task, as SLURM's does; `scontrol` lists the job's hosts.
SRUN = """#!/bin/bash
for ((task = 0; task < SLURM_NTASKS; task++)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" & pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit $code
"""
SCONTROL = """#!/bin/bash
[ "$1 $2" = "show hostnames" ] && echo 127.0.0.1 && echo other
"""


def script() -> str:
    return re.search(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)[1]


@pytest.mark.nightly(90)
def test_the_script_for_slurm_trains_with_a_task_per_worker(place, tmp_path):
    written = script().replace(
        "system=vanilla dataset=twin/flickr", " ".join(place.arguments("system=sancus"))
    )
    written = re.sub(r" workers=2(?= )", "", written)  # the script's own follows
    assert "workers=$SLURM_NTASKS" in written
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    (tmp_path / "job.sbatch").write_text(written.replace("python -m", f"{sys.executable} -m"))
    environment = {name: value for name, value in place.environment.items() if "LOCAL" not in name}
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sbatch")],
        env={
            **environment,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_NTASKS": "3",
            "SLURM_JOB_NODELIST": "node[1-2]",
        },
        cwd=place.folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (run_dir,) = place.runs()
    trace = Trace(run_dir)
    assert trace.finished and sorted(set(trace.epochs["worker"])) == [0, 1, 2]


def test_the_script_for_slurm_is_one_that_bash_reads():
    done = subprocess.run(["bash", "-n"], input=script(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\d+)$", script(), re.M))
    assert asked.keys() >= {"nodes", "ntasks-per-node", "gpus-per-task"} and asked["gpus-per-task"] == "1"


def test_what_submitit_submits_is_a_job_with_the_pages_gpus(tmp_path):
    submitit = pytest.importorskip("submitit")
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    command = re.search(r"^halobench -m (hydra/launcher=submitit_slurm.*?)\n```", PAGE, re.M | re.S)[1]
    words = [word for word in command.replace("\\\n", " ").split() if word.startswith("hydra")]
    launcher = compose(words, whole=True).hydra.launcher
    # What the launcher itself hands on, but for where its files go.
    own = {"_target_", "submitit_folder", "max_num_timeout"}
    asked = {key: value for key, value in launcher.items() if key not in own and value is not None}
    names = submitit.slurm.slurm.SlurmExecutor._equivalence_dict()
    known = {names.get(key, key): value for key, value in asked.items()}
    text = submitit.slurm.slurm._make_sbatch_string("python -m harness", tmp_path, **known)
    lines = set(text.splitlines())
    assert {"#SBATCH --partition=gpu", "#SBATCH --gpus-per-node=8", "#SBATCH --time=120"} <= lines
    assert {"#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1"} <= lines


def test_every_line_of_the_dockerfile_is_a_pages_command():
    known = {re.sub(r"\s{2,}#.*$", "", line) for line in (*blocks(README), *blocks(PAGE))}
    assert "make env" in known
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.strip()]
    for line in lines:
        word, _, rest = line.partition(" ")
        if line.startswith(("RUN useradd ", "USER ")):
            continue  # who runs it is the image's alone
        if word == "RUN":
            assert rest in known, f"{rest} is no command of README or of docs/gpu.md"
        elif word == "ENTRYPOINT":
            command = " ".join(re.findall(r'"([^"]+)"', rest)).removeprefix(".venv/bin/")
            assert any(each.startswith(f"{command} ") for each in known), command
        elif word == "#":
            assert line.rpartition(": ")[2] in known, line
        else:
            assert word in ("FROM", "WORKDIR", "COPY"), f"{line}: a step that no page has"
    assert any(line.startswith("FROM python:3.11") for line in lines) and "Python 3.11 or newer" in README


def test_what_the_page_says_is_tested_is_there():
    for path in re.findall(r"`(tests/\w+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path
