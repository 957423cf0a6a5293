"""Options for clusters, what a failed group does to the exit code, and the recipe for job arrays."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from rankscope.cli.engines import Chosen, EngineName
from rankscope.lab.engines.engine import Failed
from rankscope.lab.engines.local import Local, LocalCrew

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
ONE = ("reproduce", "amsel2024", "--scale", "smoke", "--experiment", "amsel2024/constructions", "--where")
ONE += ("construction=1 random heads,4 random heads",)


@pytest.mark.parametrize(
    ("given", "saying"),
    [
        (("--address", "host:6379"), "--address is for clusters: add --engine ray, or leave it out."),
        (("--gpus-per-group", "0.5"), "--gpus-per-group is for clusters"),
        (("--state", "shared"), "--state is for clusters"),
        (
            ("--engine", "ray", "--streams", "2"),
            "--streams is for this machine. On a cluster --gpus-per-group",
        ),
        (("--engine", "ray", "--gpus-per-group", "0.5"), "--gpus-per-group is for GPUs: add --device cuda"),
    ],
)
def test_options_that_do_not_go_together_are_refused(refuses, given, saying):
    refuses("reproduce", "li2024", *given, saying=saying)


def test_a_cluster_that_does_not_answer_is_named_at_once(cli, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*ONE, "--engine", "ray", "--address", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert "No Ray cluster at 127.0.0.1:1 (Connection refused). Start one with ray start --head" in err


def test_without_ray_the_remedy_is_named(refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("rankscope.lab.engines.ray.")]:
        monkeypatch.delitem(sys.modules, name)
    chosen = Chosen(EngineName.RAY, "cpu", None, None, None, None, None)
    with pytest.raises(Exception, match=r"ray cannot be imported: pip install 'rankscope\[ray\]'"):
        chosen.start(print)


class Troubled(LocalCrew):
    """Workers of which the one at the first group raises, as on a cluster: the others go on."""

    def ended(self, seconds):
        for number, done in super().ended(seconds):
            yield number, Failed("ValueError: of one group.") if number == 0 else done


def test_a_failed_group_is_named_and_the_exit_code_says_so(cli, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rankscope.lab.engines.local.LocalCrew", Troubled)
    code, out, err = cli(*ONE, "--out", "run")
    assert (code, out) == (1, "")
    assert "1 group failed, all others are finished and kept. amsel2024/constructions construction=" in err
    assert err.endswith(": ValueError: of one group. Mend that, and run again.\n")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    code, _, err = cli(*ONE, "--out", "run")
    assert code == 0
    assert "1 training in 1 group, 7 finished already" in err


def test_who_is_at_work_is_told(cli, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Local, "at_work", "3 nodes, 12 workers")
    _, _, err = cli(*ONE, "--out", "run")
    assert "on cpu (3 nodes, 12 workers) with" in err
    assert re.search(r"training: \d+% after \d+ s, 3 nodes, 12 workers", err)


@pytest.mark.cluster
@pytest.mark.skipif(
    "RANKSCOPE_CLUSTER" not in os.environ, reason="takes a minute: RANKSCOPE_CLUSTER=1 runs it"
)
def test_the_recipe_for_job_arrays_gives_the_tables_of_one_run(tmp_path):
    """The page's own lines, at scale smoke and without Slurm, which would set one variable and start the tasks."""
    array, joined = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S)[:2]
    at = {"--scale paper --device cuda": "--scale smoke", "layers=(1 3 5)": "layers=(1 3)"}
    for old, new in at.items():
        assert old in array
        array = array.replace(old, new)
    joined = joined.replace("rankscope report runs/figure1\n", "")
    whole = "rankscope reproduce amsel2024 --scale smoke --experiment amsel2024/figure1 --out runs/whole"
    script = f"""set -e
rankscope() {{ {sys.executable} -m rankscope.cli "$@"; }}
task() {{
{array}
}}
for SLURM_ARRAY_TASK_ID in 0 1; do task; done
{joined}
{whole}
rankscope export runs/whole --out whole --parquet-only
"""
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "runs/figure1: 16 cells added, 0 were there already." in done.stdout
    name = "amsel2024-figure1.parquet"
    tables = [pd.read_parquet(tmp_path / folder / name) for folder in ("results", "whole")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
