import math

import pandas as pd
import pytest
import torch

from rankscope.ensembles import adapters
from rankscope.ensembles.patterns import TRAINED
from rankscope.lab import Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.studies import lora
from rankscope.studies.lora.figures import steps_reached
from rankscope.studies.lora.rates import at_best_rate, at_equal_rate, best_rates, halves
from rankscope.studies.lora.trainer import AdapterTrainer
from rankscope.studies.relevant.trainer import VoteTrainer
from tests.papers.laboratory import finish

TRAINER = AdapterTrainer()
BY_ID = {claim.id.removeprefix("li2024."): claim for claim in lora.CLAIMS}
RANKS = ("full", "1", "2", "4", "8")


def smoke(name):
    return next(one for one in lora.experiments(Scale.SMOKE) if one.name == f"li2024/{name}")


def groups(experiment):
    shapes = {}
    for cell in experiment.cells():
        shapes.setdefault(experiment.trainer.shape_key(cell), []).append(cell)
    return list(shapes.values())


def trained(cells):
    """The trajectory, and the weights at the end with their adapters merged."""
    trajectory = TRAINER.train(cells, Job())
    return trajectory, adapters.merged(trajectory.at[max(trajectory.at)], cells[0].model.adapted)


def test_updates_are_held_to_their_rank_and_full_training_is_full_training():
    full, held = groups(smoke("lora"))
    assert {TRAINER.shape_key(cell) for cell in held} != {TRAINER.shape_key(cell) for cell in full}
    slow = [cell for cell in held if cell.train.learning_rate == 1.0]
    trajectory, end = trained(slow)
    for place, cell in enumerate(slow):
        for name in TRAINED:
            update = (end[name] - trajectory.at[0][name])[place].double()
            assert update.norm() > 1e-3
            assert torch.linalg.matrix_rank(update, rtol=1e-3) <= cell.model.adapter_rank, name
            assert torch.equal(trajectory.at[20][name][place], trajectory.at[0][name][place])
    _, ours = trained(full[:2])
    theirs = VoteTrainer().train(full[:2], Job()).at[20]
    for name in TRAINED:
        assert torch.equal(ours[name], theirs[name])


def test_what_is_not_adapted_learns_itself():
    part = next(group for group in groups(smoke("lora-parts")) if group[0].model.adapted == ("w_o",))
    trajectory, end = trained(part[:1])
    ranks = {
        name: int(torch.linalg.matrix_rank((end[name] - trajectory.at[0][name])[0].double(), rtol=1e-3))
        for name in TRAINED
    }
    assert ranks["w_o"] == part[0].model.adapter_rank
    assert ranks["w_v"] > 2


def test_a_run_that_diverges_counts_as_no_answer():
    cell = groups(smoke("lora"))[1][0]
    wild = type(cell)(
        cell.experiment, cell.task, cell.model, cell.train.replace(learning_rate=1e6), 0, cell.point
    )
    record = TRAINER.run([wild], Job())[0].records[0]
    assert record == {
        "measurement": "whole",
        "step": 20,
        "loss": 1.0,
        "diverged": True,
        "converged_step": 20.0,
    }


def table(loss=lambda rank, rate, seed: 0.001, steps=lambda rank, rate, seed: 30 / rate):
    return pd.DataFrame(
        [
            {
                "adapter_rank": rank, "learning_rate": rate, "seed": seed, "cell": f"{rank}-{rate}-{seed}",
                "loss": loss(rank, rate, seed), "converged_step": steps(rank, rate, seed),
            }
            for rank in RANKS for rate in (1.0, 2.0, 4.0) for seed in range(8)
        ]
    )  # fmt: skip


def test_the_rate_is_chosen_on_other_seeds_and_must_be_safe():
    def loss(rank, rate, seed):
        if rank == "1":
            return 1.0 - rate / 10  # never under 0.05: the least loss decides
        return 1.0 if (rate == 4.0 and rank == "2" and seed == 3) else 0.001

    choosing, judged = halves(table(loss))
    assert set(choosing["seed"]) == {0, 1, 2, 3}
    assert set(judged["seed"]) == {4, 5, 6, 7}
    assert best_rates(choosing) == {"full": 4.0, "1": 4.0, "2": 2.0, "4": 4.0, "8": 4.0}
    best = at_best_rate(table(loss))
    assert best.groupby("adapter_rank")["learning_rate"].unique().str[0].to_dict()["2"] == 2.0
    assert set(best["seed"]) == {4, 5, 6, 7}
    equal = at_equal_rate(table(loss))
    assert set(equal["learning_rate"]) == {1.0}
    assert len(equal) == 4 * len(RANKS)


def world(experiment):
    """A table in which the rank that remark 1 names is enough, and less is not."""
    if experiment == "li2024/lora":
        return table(loss=lambda rank, rate, seed: 0.2 if rank == "1" else 0.001)
    return pd.DataFrame(
        [
            {
                "relevant_patterns": count, "adapter_rank": rank, "seed": seed, "converged_step": 99.0,
                "loss": 0.001 if rank == "full" or int(rank) >= count else 0.3,
            }
            for count in (4, 8) for rank in RANKS for seed in range(4)
        ]
    )  # fmt: skip


COUNTEREXAMPLES = {
    "lora-two": lambda t: t.assign(loss=t["loss"].where(t["adapter_rank"] != "2", 0.2)),
    "lora-one": lambda t: t.assign(loss=0.001),
    "lora-relevant": lambda t: t.assign(loss=t["loss"].where(t["adapter_rank"] != "8", 0.3)),
}


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_a_claim_holds_in_its_world_and_fails_in_another(name):
    claim = BY_ID[name]
    assert judge(claim, world(claim.experiment)).verdict is Verdict.HOLDS
    assert judge(claim, COUNTEREXAMPLES[name](world(claim.experiment))).verdict is Verdict.FAILS


def test_every_claim_has_its_experiment_and_every_figure_is_made(tmp_path):
    store, tables = finish(lora.experiments(Scale.SMOKE), tmp_path)
    for claim in lora.CLAIMS:
        judge(claim, tables[claim.experiment])
    arrays = store.arrays_of(*lora.experiments(Scale.SMOKE))
    figures = {figure.id for figure in lora.figures(Results(tables, arrays))}
    assert {claim.figure for claim in lora.CLAIMS} == figures - {"li2024-lora-parts"}
    assert set(BY_ID) == set(COUNTEREXAMPLES)


def test_a_loss_that_is_never_reached_is_no_part_of_a_mean():
    table = pd.DataFrame(
        {"adapter_rank": ["1", "1", "2", "2"], "converged_step": [80, 80, 20, 80], "step": [80] * 4}
    )
    table = pd.concat([table, pd.DataFrame({"adapter_rank": ["full"], "converged_step": [30], "step": [80]})])
    means, lost = steps_reached("held", table)
    assert math.isnan(means.y[0])
    assert means.y[1:] == [20.0, 30.0]
    assert (list(lost.x), list(lost.y), lost.like) == (["1", "2"], [80.0, 80.0], "held")
