import marimo

app = marimo.App()


@app.cell
def _(mo):
    mo.md(r"""
    # Add your own task and claim

    A paper of your own is a small package: settings and a trainer, claims with their checks, figures. `rankscope new paper` writes one
    that runs at once. Here it becomes another one: a matrix with a few large singular values in noise, cut to a rank, and the claim
    that its rank is found.
    """)


@app.cell
def _():
    import subprocess
    import sys
    import tempfile
    from pathlib import Path
    from textwrap import dedent

    import marimo as mo

    import rankscope

    return Path, dedent, mo, rankscope, subprocess, sys, tempfile


@app.cell
def _(Path, subprocess, sys, tempfile):
    here = Path(tempfile.mkdtemp())
    command = [sys.executable, "-m", "rankscope.cli", "new", "paper", "mine2026", "--out", str(here)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sorted(path.name for path in (here / "mine2026").iterdir())
    return here, said


@app.cell
def _(mo):
    mo.md(r"""
    ## The task, and what is measured

    A setting is a `Config`: frozen, and an unknown field is an error. Randomness comes from a named stream, so that a cell does not
    depend on its neighbours. `compute` returns the rows of a cell. What is trained step by step has a `Trainer` instead of a
    `Computation`, as the skeleton shows.
    """)


@app.cell
def _(dedent, here):
    experiments = """
    import torch
    from rankscope.core import Config
    from rankscope.core.streams import stream
    from rankscope.lab import Computation, Experiment, Grid, Outcome, Scale


    class Task(Config):
        size: int = 40
        planted: int = 3
        noise: float = 0.02


    class Model(Config):
        rank: int = 1


    class Recipe(Config):
        pass


    class Cut(Computation):
        def shape_key(self, cell):
            return cell.task

        def compute(self, cell):
            task, draws = cell.task, stream(cell.seed, "mine2026", "matrix")
            left, right = (torch.randn(task.size, task.planted, generator=draws) for _ in range(2))
            clean = left @ right.T / task.size
            seen = clean + task.noise * torch.randn(task.size, task.size, generator=draws)
            u, s, v = torch.linalg.svd(seen)
            cut = u[:, : cell.model.rank] * s[: cell.model.rank] @ v[: cell.model.rank]
            return Outcome([{"error": float((cut - clean).norm() / clean.norm())}])


    def experiments(scale):
        seeds = {Scale.SMOKE: 6, Scale.QUICK: 20, Scale.PAPER: 100}[scale]
        grid = Grid(seed=range(seeds), rank=(1, 2, 3, 4, 8))
        return [Experiment("mine2026/cut", Task(), Model(), Recipe(), grid, Cut())]
    """
    written = (here / "mine2026" / "experiments.py").write_text(dedent(experiments))
    return (written,)


@app.cell
def _(mo):
    mo.md(r"""
    ## The claim

    A claim is written beside its check: whose statement it is, which experiment decides it, and a function of the table that returns
    checks. A check has one value per seed and a bound; the lab decides. What is checked must not depend on what was measured.
    """)


@app.cell
def _(dedent, here):
    claims = """
    from rankscope.lab import AtLeast, AtMost, Check, Claims

    CLAIMS = Claims("mine2026")


    @CLAIMS("rank-found", source="Section 1", says="Three directions are enough, and needed.", experiment="cut", figure="1")
    def rank_found(table):
        error = table.pivot(index="seed", columns="rank", values="error")
        return [
            Check("error at rank 2 over error at rank 3", tuple(error[2] / error[3]), AtLeast(1.5)),
            Check("error at rank 3 over error at rank 8", tuple(error[3] / error[8]), AtMost(1.0)),
        ]
    """
    claimed = (here / "mine2026" / "claims.py").write_text(dedent(claims))
    figures = """
    from rankscope.figures.figure import Figure, Panel, curve


    def figures(results):
        table = results.tables["mine2026/cut"]
        panel = Panel("Three directions in noise", "rank", "error", [curve("measured", table, "rank", "error")], log_y=True)
        caption = "Distance to the matrix without noise, over its norm."
        return [Figure("mine2026-1", "A matrix cut to a rank", "", caption, [panel], experiments=("mine2026/cut",))]
    """
    drawn = (here / "mine2026" / "figures.py").write_text(dedent(figures))
    return claimed, drawn


@app.cell
def _(mo):
    mo.md(r"""
    ## Run it

    On the command line: `rankscope reproduce --paper mine2026:PAPER --scale smoke`, in the folder that has `mine2026/`. It keeps what
    is finished, shows the verdicts and writes a page.
    """)


@app.cell
def _(claimed, drawn, here, rankscope, sys, written):
    assert claimed and drawn and written, "the files are written first"
    sys.path.insert(0, str(here))
    run = rankscope.reproduce("mine2026:PAPER", scale="smoke", out=here / "run")
    run.verdicts
    return (run,)


@app.cell
def _(run):
    run.figures["mine2026-1"]


@app.cell
def _(run):
    run.tables["mine2026/cut"].pivot(index="seed", columns="rank", values="error").round(3)


@app.cell
def _(mo):
    mo.md(r"""
    An unknown experiment, figure or column in a claim is an error that names the claim. A package with the entry point
    `mine2026 = "mine2026:PAPER"` in the group `rankscope.papers` is found without `--paper`.
    """)


if __name__ == "__main__":
    app.run()
