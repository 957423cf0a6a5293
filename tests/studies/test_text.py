"""Points that look like text: planted tables for every claim, the figures, and measurements on known cases."""

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope.core import InputError
from rankscope.core.streams import Split, stream
from rankscope.lab import Cell, Job, Scale, Verdict, judge
from rankscope.lab.paper import Results
from rankscope.linalg.factored import Factored
from rankscope.studies.real.assets import missing
from rankscope.studies.text import STUDY, batches
from rankscope.studies.text.claims import CLAIMS, spread
from rankscope.studies.text.experiments import experiments
from rankscope.studies.text.heads import head_records
from rankscope.studies.text.projections import compared, farthest, projected_records
from rankscope.studies.text.sources import STATES, WORDS, groups_of, rows_of
from rankscope.tasks.laws import Ellipsoid, Empirical, LawNeighbors, Sphere, split_rows
from rankscope.theory.points.spectra import dimensions, power_spectrum

BY_NAME = {claim.name: claim for claim in CLAIMS}
QUICK = {one.name: one for one in experiments(Scale.QUICK)}
real = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def trained():
    """Full rank answers all, low rank half; more heads and layers win back a tenth."""
    rows = []
    for cell in QUICK["amsel2024/text"].cells():
        point = dict(cell.point)
        low = cell.model.rank < cell.model.dim
        helped = 0.05 if point["shape"] != "1 layer at budget 1" else 0.0
        rows.append(point | {"seed": cell.seed, "cell": cell.key(), "dim": cell.model.dim,
                             "error": 0.02 + low * (0.5 - helped),
                             "answered": 0.98 - 0.4 * low + 0.001 * (point["law"] == WORDS)})  # fmt: skip
    return pd.DataFrame(rows)


def projected():
    """Words keep more than the sphere, as predicted, and need what their participation ratio says."""
    rows = []
    for number, cell in enumerate(QUICK["amsel2024/text-projections"].cells()):
        law = dict(cell.point)["law"]
        size = 20.0 + 10 * number
        for rank in (1, 32, 64):
            kept = 0.2 + rank / 200 - 0.1 * (law == "power 0")
            rows.append({"law": law, "seed": cell.seed, "cell": cell.key(), "rank": rank, "agreement": kept, "predicted": kept,
                         "error": 1 - kept, "predicted_error": 1 - kept, "needed": size, "halved": size / 4,
                         "predicted_needed": size, "predicted_halved": size / 4, "dim": 384, "participation": size,
                         "entropy": size**2, "energy": 50.0, "score": size**0.5, "score_energy": 9.0})  # fmt: skip
    return pd.DataFrame(rows)


def heads():
    return pd.DataFrame(
        [
            {"layer": cell.model.layer, "seed": cell.seed, "cell": cell.key(), "head": head, "rank": 32,
             "effective_rank": 10.0 + cell.model.layer + head, "used_rank": 5.0 + cell.model.layer,
             "participation": 30.0 + cell.model.layer, "input_rank": 100.0}
            for cell in QUICK["amsel2024/text-heads"].cells()
            for head in range(2)
        ]
    )  # fmt: skip


TABLES = {"amsel2024/text": trained, "amsel2024/text-projections": projected, "amsel2024/text-heads": heads}


def table(experiment):
    return TABLES[experiment]()


def test_every_claim_holds_on_a_table_that_shows_it():
    for claim in CLAIMS:
        assert judge(claim, table(claim.experiment)).verdict is Verdict.HOLDS, claim.id


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("text-easier", lambda t: t.assign(agreement=t["agreement"].where(t["law"] != WORDS, 0.0))),
        ("text-half", lambda t: t.assign(agreement=0.9)),
        (
            "text-predicted",
            lambda t: t.assign(predicted=t["predicted"].where(t["law"] != WORDS, t["predicted"] + 0.2)),
        ),
        ("text-dimension", lambda t: t.assign(entropy=t["needed"], participation=50.0)),
        ("text-needed-predicted", lambda t: t.assign(predicted_needed=50.0)),
        (
            "text-heads-make-up",
            lambda t: t.assign(error=t["error"].where(t["shape"] != "1 layer at budget 4", 0.02)),
        ),
        (
            "text-depth-makes-up",
            lambda t: t.assign(error=t["error"].where(t["shape"] != "3 layers at budget 1", 0.02)),
        ),
        ("text-law", lambda t: t.assign(answered=t["answered"].where(t["law"] != WORDS, 0.1))),
        ("text-used-rank", lambda t: t.assign(used_rank=-t["participation"])),
    ],
)
def test_each_claim_fails_where_its_own_number_is_wrong(name, change):
    claim = BY_NAME[name]
    assert judge(claim, change(table(claim.experiment))).verdict is Verdict.FAILS


def test_a_dimension_that_is_proportional_has_no_spread():
    assert spread(projected(), "participation").tolist() == pytest.approx([0.0] * 8)
    assert (spread(projected(), "energy") > 0.1).all()


def test_figures_and_the_finding_come_with_their_tables():
    results = Results({name: made() for name, made in TABLES.items()}, lambda key: {})
    assert {figure.id for figure in STUDY.figures(results)} == {claim.figure for claim in CLAIMS}
    needed, dimension, made_up = STUDY.findings(results)
    assert "a score of rank 32 keeps 0.36 and one of rank 64 keeps 0.52" in needed.sentence
    assert (
        dimension.answer
        == "Of five effective dimensions, the participation ratio predicts the needed rank best."
    )
    assert (
        "is 1 times the participation ratio in the median, with a spread of 0 in its logarithm"
        in dimension.sentence
    )
    assert made_up.answer == "Neither more heads nor more layers replace rank on words."
    assert "heads of rank 1 lose" in made_up.sentence
    assert "4 times the heads win back 0.1 and 3 layers 0.1; of what rank 4 loses, " in made_up.sentence
    assert {claim for one in (needed, dimension, made_up) for claim in one.claims} <= {
        claim.id for claim in CLAIMS
    }
    whole = trained()
    better = whole.assign(
        error=whole["error"].where((whole["shape"] != "3 layers at budget 1") | (whole["rank"] != 4), 0.02)
    )
    (made_up,) = STUDY.findings(Results({"amsel2024/text": better}, lambda key: {}))
    assert made_up.answer == "On words, heads or layers replace rank in part."
    assert (
        "4 times the heads win back 0.1 and 3 layers 0.1; of what rank 4 loses, 0.1 and 1."
        in made_up.sentence
    )
    part = {"amsel2024/text": whole[whole["shape"] == "1 layer at budget 1"]}
    assert STUDY.findings(Results(part, lambda key: {})) == []
    assert len(STUDY.figures(Results(part, lambda key: {}))) == 1
    assert STUDY.figures(Results({}, lambda key: {})) == []
    assert STUDY.findings(Results({}, lambda key: {})) == []


def test_projected_scores_keep_what_theory_predicts_and_full_rank_keeps_all():
    task = LawNeighbors(dim=96, tokens=16, law=Ellipsoid(exponent=0.5))
    found = pd.DataFrame(projected_records(task, 500, (4, 16, 48, 96), seed=0))
    assert found["agreement"].iloc[-1] == 1
    assert (found["agreement"] - found["predicted"]).abs().max() < 0.03
    assert (found["error"] - found["predicted_error"]).abs().max() < 0.1
    assert found["needed"].iloc[0] == pytest.approx(found["predicted_needed"].iloc[0], abs=4)
    assert found["halved"].iloc[0] == pytest.approx(
        found["predicted_halved"].iloc[0], rel=0.2
    )  # of points before scaling
    assert found["participation"].iloc[0] == pytest.approx(dimensions(power_spectrum(96, 0.5)).participation)


def test_two_choices_are_compared_point_by_point():
    points = torch.nn.functional.normalize(torch.randn(30, 8, 12, generator=stream(0, "points")), dim=-1)
    exact, low = farthest(points, 12), farthest(points, 3)
    same, error = compared(points, exact, 3, points @ points.mT)
    assert same == pytest.approx(float((exact == low).double().mean()))
    naive = [
        (points[s, exact[s, q]] - points[s, low[s, q]]).square().sum() for s in range(30) for q in range(8)
    ]
    assert error == pytest.approx(float(torch.stack(naive).mean()), abs=1e-6)
    assert compared(points, exact, 12, points @ points.mT) == pytest.approx((1, 0), abs=1e-6)


def test_a_head_on_data_of_one_direction_uses_rank_one():
    left = torch.linalg.qr(torch.randn(2, 12, 4, generator=stream(0, "left")))[0]
    qk = Factored(left, left.mT)
    inputs = torch.randn(500, 1, generator=stream(0, "inputs")) * torch.ones(12)
    for row in head_records(qk, inputs):
        assert row["effective_rank"] == pytest.approx(4.0, abs=1e-4)
        assert row["used_rank"] < 1.2
        assert row["participation"] == pytest.approx(1.0, abs=1e-3)
    many = head_records(qk, torch.randn(5000, 12, generator=stream(1, "inputs")))
    assert many[0]["used_rank"] == pytest.approx(4.0, abs=0.05)


def test_a_stack_holds_every_law_and_rank_and_a_member_does_not_depend_on_its_neighbours():
    smoke = experiments(Scale.SMOKE)[0]
    cells = [
        cell
        for cell in smoke.cells()
        if cell.model.layers == 1 and cell.model.budget == 1 and isinstance(cell.task.law, Sphere | Ellipsoid)
    ]
    assert len({smoke.trainer.shape_key(cell) for cell in cells}) == 1
    together = [outcome.records[0] for outcome in smoke.trainer.run(cells, Job())]
    alone = smoke.trainer.run(cells[-1:], Job())[0].records[0]
    assert together[-1]["error"] == pytest.approx(alone["error"], rel=1e-3)
    assert all(0 < record["error"] < 2 and 0 < record["answered"] <= 1 for record in together)


def test_what_a_gpu_draws_has_the_laws_and_answers_and_repeats_for_no_step(tmp_path, monkeypatch):
    """With normal numbers by key and step from torch in the place of the kernel's."""

    def twin(keys, step, count):
        seeds = [int(key) * 1000 + int(step) for key in keys]
        return torch.stack(
            [torch.randn(count, generator=torch.Generator().manual_seed(one)) for one in seeds]
        )

    monkeypatch.setattr(batches, "normals", twin)
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32))
    smoke = experiments(Scale.SMOKE)[0].cells()[0]
    laws = (Empirical(source=str(tmp_path / "rows.npy")), Ellipsoid(exponent=2.0), Sphere())
    train = smoke.train.replace(batch=2000)
    cells = [
        Cell("drawn", smoke.task.replace(law=law), smoke.model.replace(rank=rank), train, seed=seed, point=())
        for rank in (1, 4)
        for law in laws
        for seed in (0, 1)
    ]
    there = batches.LawsThere(cells, "cpu")
    points, answers = there.drawn(torch.tensor([3]))
    points, answers = points[there.source], answers[there.source]
    assert torch.equal(points[:6], points[6:])
    for cell, own, answer in zip(cells[:6], points, answers, strict=False):
        assert own.norm(dim=-1) == pytest.approx(torch.ones(2000, 4), abs=1e-5)
        assert torch.equal(farthest(own, 4), (own @ own.mT).argmin(-1))
        assert torch.equal(answer, own.gather(1, farthest(own, 4).unsqueeze(-1).expand_as(own)))
        twin_draw = batches.batch([cell], Split.TRAIN, 3, "cpu")[0][0].flatten(0, 1)
        moments = [one.T @ one / len(one) for one in (own.flatten(0, 1), twin_draw)]
        assert moments[0] == pytest.approx(moments[1], abs=0.03)
    pool = batches.rows_for(cells[0].task, Split.TRAIN, 0)
    assert torch.cdist(points[0].flatten(0, 1), pool).amin(1).max() < 1e-3
    assert torch.cdist(pool, points[0].flatten(0, 1)).amin(1).max() < 1e-3
    assert not torch.equal(points, there.drawn(torch.tensor([4]))[0][there.source])


def test_a_source_is_a_name_or_a_matrix(tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(4, dtype=np.float32) * 2)
    assert torch.equal(rows_of(str(tmp_path / "rows.npy")), torch.eye(4))
    with pytest.raises(InputError, match="No source 'wrds': take words, sentences"):
        rows_of("wrds")


@real
@pytest.mark.real
def test_the_words_are_those_of_the_vocabulary_and_easier_than_the_sphere():
    assert rows_of(WORDS).shape == (29522, 384)
    cell = next(
        cell for cell in QUICK["amsel2024/text-projections"].cells() if dict(cell.point)["law"] == WORDS
    )
    found = {row["rank"]: row["agreement"] for row in projected_records(cell.task, 300, (1, 32, 256), 0)}
    assert found == pytest.approx({1: 0.12, 32: 0.40, 256: 0.85}, abs=0.04)


@real
@pytest.mark.real
def test_no_sentence_of_the_test_has_a_token_that_was_trained_on():
    rows, groups = rows_of(f"{STATES}3"), groups_of(f"{STATES}3")
    assert len(rows) == len(groups)
    train, test = (
        set(split_rows(groups.unsqueeze(1), split, 0, groups).flatten().tolist())
        for split in (Split.TRAIN, Split.TEST)
    )
    assert not train & test
    assert len(test) == pytest.approx(0.25 * (len(train) + len(test)), abs=1)


def test_smoke_leaves_the_heads_of_a_real_model_to_quick():
    (smoke,), (quick,) = (
        [one for one in experiments(scale) if one.name == "amsel2024/text-heads"]
        for scale in (Scale.SMOKE, Scale.QUICK)
    )
    assert (quick.requires() is None) == (missing() is None)
    lack = missing() or "it embeds 1,600 sentences with all-MiniLM-L6-v2: run it at scale quick"
    assert smoke.not_run == f"amsel2024/text-heads is not run: {lack}."
