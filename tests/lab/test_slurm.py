"""The recipes of docs/clusters.md as jobs of Slurm, at scale smoke. RANKSCOPE_CLUSTER=1 runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.lab.simulated import ROOT
from tests.lab.slurm import free_ports, lacking, slurm

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        "RANKSCOPE_CLUSTER" not in os.environ, reason="takes minutes: RANKSCOPE_CLUSTER=1 runs it"
    ),
    pytest.mark.skipif(bool(lacking()), reason=f"no job was given to Slurm: {lacking()}"),
]

PAGE = ROOT / "docs" / "clusters.md"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Slurm, with the commands of the recipes."""
    place = tmp_path_factory.mktemp("slurm")
    (place / "bin").mkdir()
    command = place / "bin" / "rankscope"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rankscope.cli "$@"\n')
    command.chmod(0o755)
    with slurm(place) as made:
        yield made | {
            "PATH": os.pathsep.join(
                [str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
        }


def recipes():
    """The page's three scripts: a job array, what joins its parts, a Ray cluster."""
    return re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S)


def changed(script, changes):
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    return script


def batch(script, folder, environment):
    """Give it to Slurm and wait for its end."""
    (folder / "job.sh").write_text(script)
    line = ["sbatch", "--wait", "--output=job-%a.log", "job.sh"]
    done = subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    told = "\n".join(path.read_text() for path in sorted(folder.glob("job-*.log")))
    assert done.returncode == 0, f"{done.stderr}\n{told}"
    return told


def shell(script, folder, environment):
    done = subprocess.run(
        ["bash", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def same(folder, name):
    """The tables of both exports."""
    tables = [pd.read_parquet(folder / way / f"{name}.parquet") for way in ("results", "whole")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_a_job_array_whose_parts_are_merged_gives_the_tables_of_one_run(environment, tmp_path):
    array, joined, _ = recipes()
    smaller = {
        "--scale paper --device cuda": "--scale smoke",
        "layers=(1 3 5)": "layers=(1 3)",
        "=0-2": "=0-1",
    }
    told = batch(changed(array, smaller), tmp_path, environment)
    assert told.count("trainings in") == 2
    assert "16 cells added, 0 were there already." in shell(joined, tmp_path, environment)
    whole = "rankscope reproduce amsel2024 --scale smoke --experiment amsel2024/figure1 --out runs/whole\n"
    shell(f"{whole}rankscope export runs/whole --out whole --parquet-only", tmp_path, environment)
    same(tmp_path, "amsel2024-figure1")


JOINED = """for _ in 1 2 3 4 5 6 7 8 9; do
  [ "$(ray status --address "$head:{port}" | grep -c node_)" = 2 ] && break
  sleep 2
done
"""


def test_a_ray_cluster_within_a_job_gives_the_tables_of_one_machine(environment, tmp_path):
    """Two nodes, for Ray's own do not start at one moment on one machine. The sweep, which is short, waits for the second."""
    _, _, cluster = recipes()
    part, port = "--scale smoke --experiment amsel2024/constructions", str(free_ports(1))
    smaller = {"--scale paper --device cuda": part, "--nodes=4": "--nodes=2", "6379": port}
    smaller["rankscope reproduce"] = f"{JOINED.format(port=port)}rankscope reproduce"
    told = batch(changed(cluster, smaller), tmp_path, environment)
    assert told.count("Ray runtime started.") == 2, told
    assert re.search(r"on cpu \(2 nodes, \d+ workers\)", told), told
    whole = f"rankscope reproduce amsel2024 {part} --out runs/whole\n"
    whole += "rankscope export runs/whole --out whole --parquet-only\n"
    shell(f"{whole}rankscope export runs/amsel --out results --parquet-only", tmp_path, environment)
    same(tmp_path, "amsel2024-constructions")
