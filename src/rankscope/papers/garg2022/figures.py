"""garg2022's figures: errors by examples, the way they fell, rank and heads apart, other functions and shifted inputs."""

from functools import partial

import pandas as pd

from rankscope.figures.figure import Figure, Panel, Series, curve, paper_line
from rankscope.lab.paper import Makers, Results, drawn
from rankscope.lab.sizes import counted
from rankscope.lab.tidy import rows_of
from rankscope.papers.garg2022.algorithms import BASELINE
from rankscope.papers.garg2022.measurement import ERRORS, LOSS
from rankscope.papers.garg2022.quantities import (
    authors_heads,
    by_size,
    end_errors,
    last,
    longest_by_size,
    transitions,
)
from rankscope.tasks.in_context import Functions, Shift

TALK = "The talk: their exact code, and only the number of heads is changed; more heads are worse."
EXAMPLES, ERROR, HEADS = "examples", "squared error / E y²", "heads (rank = dim/heads)"
MEANS = "Mean over seeds with its 95% interval."


def figures(results: Results) -> list[Figure]:
    """Every figure whose experiment has been run."""
    known = results.tables.get("garg2022/baselines")
    made: Makers = {
        "heads": (partial(_by_examples, known), _time, _shifts),
        "apart": (_apart,),
        "classes": (partial(_classes, known),),
    }
    return drawn(results, "garg2022", made)


def _by_examples(known: pd.DataFrame | None, table: pd.DataFrame) -> Figure:
    """Per size the errors of every head count by examples, and the error at the end of every piece by heads."""
    panels = []
    for _, own in by_size(table):
        size = _size(own)
        rows = rows_of(last(own), ERRORS, shift=Shift.NONE.value)
        exact = rows.groupby("examples", sort=True)["least_squares"].mean()
        others = (one for one in _algorithms(known, Functions.LINEAR) if one.name != "least squares")
        lines = [*_by_heads(rows, "examples", "error"), paper_line("least squares", exact), *others]
        pieces = [
            curve(f"{steps:,} steps", each, "heads", "error")
            for steps, each in end_errors(own).groupby("steps", sort=True)
        ]
        steps, most = int(rows["step"].max()), int(rows["examples"].max())
        title = f"{size}, after {steps:,} steps"
        panels += [
            Panel(title, EXAMPLES, ERROR, lines, ordered=True),
            Panel(f"{size}, {most} examples", HEADS, ERROR, pieces, log_x=True, log_y=True, ordered=True),
        ]
    return Figure(
        id="garg2022-heads",
        title="Learning linear functions in context, by the number of heads at equal parameters",
        paper_says=TALK,
        caption="Left: errors by examples; the answer 0 has error 1, and grey are known algorithms where they err by no more. "
        f"Right: with the most examples, where least squares has error 0. Rank is dim/heads. {MEANS}",
        panels=panels,
        columns=2,
    )


def _time(table: pd.DataFrame) -> Figure:
    """Per size training losses by steps, and the transition by heads."""
    panels, late, trainings = [], 0, 0
    for _, own in by_size(table):
        size = _size(own)
        rows, whole = rows_of(last(own), LOSS), transitions(last(own))
        late, trainings = late + int(whole["transition"].isna().sum()), trainings + len(whole)
        half = Series(
            "one half", [float(rows["step"].min()), float(rows["step"].max())], [0.5, 0.5], paper=True
        )
        panels += [
            Panel(
                size,
                "step",
                "excess training loss",
                [*_by_heads(rows, "step", "excess"), half],
                log_x=True,
                ordered=True,
            ),
            Panel(
                f"{size}{_without_one(whole)}",
                HEADS,
                "step of the transition",
                [curve("transition", whole, "heads", "reached")],
                log_x=True,
                most=float(rows["step"].max()),
            ),
        ]
    never = (
        f" {late} of {trainings} trainings had none by their end, and count as if it had appeared there."
        if late
        else ""
    )
    return Figure(
        id="garg2022-heads-time",
        title="When the in-context solution appears",
        paper_says=TALK,
        caption="Left: training loss on fresh prompts over all prefixes, on a scale on which least squares has 0 and the "
        "answer 0 has 1, at each stage of the curriculum. Right: the step from which it stayed under one half."
        f"{never} {MEANS}",
        panels=panels,
        columns=2,
    )


def _without_one(whole: pd.DataFrame) -> str:
    """How many trainings had no transition, and are drawn at their end."""
    late = int(whole["transition"].isna().sum())
    return f" (none by the end in {late} of {len(whole)})" if late else ""


def _shifts(table: pd.DataFrame) -> Figure:
    """Inputs of another law than in training, at the authors' heads, a panel per size."""
    panels = []
    for size, own in longest_by_size(table):
        rows = authors_heads(size, rows_of(own, ERRORS))
        lines = [
            curve(str(shift), each, "examples", "error") for shift, each in rows.groupby("shift", sort=False)
        ]
        title = f"{_size(own)}, {counted(rows['heads'].iloc[0], 'head')}"
        panels.append(Panel(title, EXAMPLES, ERROR, lines))
    return Figure(
        id="garg2022-heads-shifts",
        title="Inputs of another law than in training",
        paper_says="The paper: trained decoders are robust to most shifts between training and prompt.",
        caption="Skewed: eigenvalues of the inputs' covariance ∝ 1/i². Orthants: all examples in one orthant, the query in "
        f"another, at every number of examples. Scaled: inputs three times as long. {MEANS}",
        panels=panels,
    )


def _apart(table: pd.DataFrame) -> Figure:
    """Errors and transitions over rank, a curve for each number of heads."""
    errors, whole = end_errors(last(table)), transitions(last(table))

    return Figure(
        id="garg2022-apart",
        title="Rank and heads apart",
        paper_says="Not in the paper or the talk: there the product of rank and heads is dim.",
        caption=f"Left: error with {int(errors['examples'].max())} examples after {int(errors['step'].max()):,} steps. Right: "
        f"the step of the transition, or the last step where there was none. {MEANS}",
        panels=[
            Panel(
                "error", "rank of a head", ERROR, _by_heads(errors, "rank", "error"), log_x=True, ordered=True
            ),
            Panel(
                f"transition{_without_one(whole)}",
                "rank of a head",
                "step",
                _by_heads(whole, "rank", "reached"),
                log_x=True,
                ordered=True,
                most=float(errors["step"].max()),
            ),
        ],
    )


def _classes(known: pd.DataFrame | None, table: pd.DataFrame) -> Figure:
    """A panel per class of functions."""
    rows = rows_of(last(table), ERRORS)
    panels = []
    for functions, own in rows.groupby("functions", sort=False):
        lines = _by_heads(own, "examples", "error")
        grey = _algorithms(known, Functions(functions))
        panels.append(Panel(str(functions), EXAMPLES, ERROR, [*lines, *grey], ordered=True))
    return Figure(
        id="garg2022-classes",
        title="Other functions, by the number of heads at equal parameters",
        paper_says="The paper: decoders match or beat algorithms made for each class. The talk: a few other varieties agree.",
        caption=f"After {int(rows['step'].max()):,} steps; grey are known algorithms on the same prompts, where they err by "
        f"no more than the answer 0. {MEANS}",
        panels=panels,
    )


def _algorithms(known: pd.DataFrame | None, functions: Functions) -> list[Series]:
    """Known algorithms on a class; one that errs by more than the answer 0 is cut off there, or everywhere."""
    if known is None:
        return []
    rows = rows_of(known, BASELINE, functions=functions.value)
    found = []
    for name, own in rows.groupby("algorithm", sort=False):
        means = own.groupby("examples", sort=True)["error"].mean()
        shown = means.where(means <= 1.05)
        if (shown + shown.shift()).notna().any():  # of a line, points without a neighbour cannot be seen
            found.append(paper_line(str(name), shown))
    return found


def _by_heads(rows: pd.DataFrame, x: str, y: str) -> list[Series]:
    return [curve(counted(heads, "head"), own, x, y) for heads, own in rows.groupby("heads", sort=True)]


def _size(rows: pd.DataFrame) -> str:
    dim, layers = (int(rows[name].iloc[0]) for name in ("dim", "layers"))
    return f"dim {dim}, {counted(layers, 'layer')}"
