"""Heads of lower rank: exact where they can be, optimal by a slow twin, and written as a model that loads."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from rankscope.checkpoints import open_checkpoint, open_source
from rankscope.checkpoints.packed import Packing
from rankscope.core import InputError
from rankscope.core.streams import stream
from rankscope.linalg.decompose import all_factors
from rankscope.scope.compress import Ranking, compress_heads, halves, lower_ranks
from rankscope.scope.directions import balanced_directions
from rankscope.scope.fidelity import load_model
from rankscope.scope.head_space import Product, head_spaces, packings, turn
from rankscope.scope.moments import loss_slopes, space_moments
from rankscope.scope.neurons import mean_loss
from rankscope.scope.packed_layers import load_compressed, pack_model
from tests.zoo import SPECIMENS, build, inputs

ARCHITECTURES = [name for name in SPECIMENS if name not in ("mistral", "gemma2", "roberta", "t5")]


def batches(name="gpt2"):
    return [inputs(name), inputs(name, seed=1)]


def output(model, name):
    with torch.no_grad():
        return model(**inputs(name))[0]


def random(*shape):
    return torch.randn(*shape, generator=stream(0, "compress", *shape), dtype=torch.float64)


def test_directions_truncate_a_weighted_product_as_its_svd_does():
    left, right, c, s = random(9, 5), random(5, 7), random(9, 9), random(7, 7)
    x, y = balanced_directions(left.T @ c.T @ c @ left, right @ s @ s.T @ right.T)
    torch.testing.assert_close(x @ y, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-6)
    for rank in range(1, 6):
        found = c @ left @ x[:, :rank] @ y[:rank] @ right @ s
        torch.testing.assert_close(
            found, all_factors(c @ left @ right @ s).truncated(rank), rtol=1e-6, atol=1e-5
        )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_turning_a_head_changes_nothing_and_packing_changes_nothing(name):
    model = build(name)
    whole = output(model, name)
    turned = copy.deepcopy(model)
    for space in head_spaces(open_checkpoint(turned)):
        free, rank = space.free, space.block.head_dim
        if space.is_open and free.start < rank:
            basis = torch.eye(rank, dtype=torch.float64).repeat(space.block.groups, 1, 1)
            inner = random(space.block.groups, rank - free.start, rank - free.start)
            basis[:, free, free] += 0.2 * inner
            turn(turned, space, basis.inverse(), basis)
    torch.testing.assert_close(output(turned, name), whole, rtol=1e-3, atol=1e-3)
    lowered, kept = lower_ranks(model, 0.3, [], Ranking.PLAIN)  # needs no data
    plain = output(lowered, name)
    assert not torch.allclose(plain, whole, atol=1e-3)
    packed = pack_model(copy.deepcopy(lowered), packings(kept))
    torch.testing.assert_close(output(packed, name), plain, rtol=1e-4, atol=1e-4)
    stored = [sum(p.numel() for p in m.parameters()) for m in (packed, model)]
    gone = sum(int((~mask).sum()) * space.cost for space, mask in kept.items())
    total = sum(mask.numel() * space.cost for space, mask in kept.items())
    assert 0.3 <= gone / total < 0.4
    assert stored[1] - stored[0] >= gone


def test_a_model_that_was_never_saved_is_written_and_loads(tmp_path):
    model = build("opt")
    model.config.architectures = None
    written = compress_heads(model, tmp_path / "out", share=0.3, batches=batches("opt"))
    assert written.loss is not None
    assert type(load_compressed(tmp_path / "out")) is type(model)


@pytest.mark.parametrize("name", ["gpt2", "bert", "opt", "bloom"])
@pytest.mark.parametrize("ranking", [Ranking.LOSS, Ranking.ENERGY])
def test_planted_ranks_of_mha_without_rope_are_found_and_cost_nothing(name, ranking):
    model = build(name)
    planted = {}
    for number, space in enumerate(head_spaces(open_checkpoint(model))):
        for group in range(space.block.groups):
            planted[space.key, group] = 1 + (number + group) % 4
        low = torch.eye(8, dtype=torch.float64).repeat(4, 1, 1)
        for group in range(4):
            basis = random(8, 8) + 3 * torch.eye(8, dtype=torch.float64)
            cut = torch.diag((torch.arange(8) < planted[space.key, group]).double())
            low[group] = basis @ cut @ basis.inverse()
        turn(model, space, low, low)
    whole = output(model, name)
    share = 1 - sum(planted.values()) / (8 * len(planted))
    lowered, kept = lower_ranks(model, share, batches(name), ranking)
    assert {
        (space.key, group): int(mask[group].sum()) for space, mask in kept.items() for group in range(4)
    } == planted
    torch.testing.assert_close(output(lowered, name), whole, rtol=1e-3, atol=1e-3)


def test_moments_are_those_of_queries_keys_and_mixed_values():
    model, data = build("gpt2"), batches()
    spaces = head_spaces(open_checkpoint(model))
    moments = space_moments(model, spaces, data)
    seen, mixed = [], []
    block = model.transformer.h[1].attn
    hooks = [
        block.c_attn.register_forward_hook(lambda _, __, out: seen.append(out.detach())),
        block.c_proj.register_forward_pre_hook(lambda _, given: mixed.append(given[0].detach())),
    ]
    for batch in data:
        output_of = model(**batch)
        assert output_of is not None
    for hook in hooks:
        hook.remove()
    head = 2
    q, k, _ = torch.cat(seen).flatten(0, 1).double().split(32, -1)
    q, k = (part[:, 8 * head : 8 * head + 8] for part in (q, k))
    z = torch.cat(mixed).flatten(0, 1).double()[:, 8 * head : 8 * head + 8]
    w_o = block.c_proj.weight.detach().double()[8 * head : 8 * head + 8]
    name = "transformer.h.1.attn"
    left, right = moments[name, Product.QK]
    torch.testing.assert_close(left[head], k.T.cov(correction=0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(right[head], q.T @ q / len(q), rtol=1e-5, atol=1e-6)
    left, right = moments[name, Product.OV]
    torch.testing.assert_close(left[head], w_o @ w_o.T, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(right[head], z.T @ z / len(z), rtol=1e-5, atol=1e-6)


def test_slopes_are_those_of_the_loss_when_a_coordinate_fades():
    model, data = build("llama"), [inputs("llama")]
    spaces = head_spaces(open_checkpoint(model))
    found = loss_slopes(model, spaces, data)
    space = next(s for s in spaces if s.product == Product.OV)
    group, coordinate, step = 1, 3, 1e-2
    columns = [8 * head + coordinate for head in (2, 3)]
    fade = torch.zeros(2, 7, requires_grad=False)

    def hook(_, given):
        scale = torch.ones_like(given[0])
        scale[..., columns] -= fade[..., None]
        return (given[0] * scale, *given[1:])

    handle = model.get_submodule(space.block.name).self_attn.o_proj.register_forward_pre_hook(hook)
    total = 0.0
    for row in range(2):
        for token in range(7):
            losses = []
            for sign in (1, -1):
                fade[row, token] = sign * step
                losses.append(mean_loss(model, data))
            fade[row, token] = 0
            total += ((losses[0] - losses[1]) / (2 * step)) ** 2
    handle.remove()
    assert float(found[space.key][group, coordinate]) == pytest.approx(total, rel=0.02)


def test_a_rotated_pair_goes_whole_and_qk_norm_keeps_its_rank():
    for name, pairs in (
        ("llama", lambda i: (i, i + 4)),
        ("cohere", lambda i: (2 * i, 2 * i + 1)),
    ):
        _, kept = lower_ranks(build(name), 0.4, batches(name), Ranking.LOSS)
        masks = [mask for space, mask in kept.items() if space.product == Product.QK]
        assert any(not mask.all() for mask in masks)
        for mask in masks:
            for pair in map(pairs, range(4)):
                assert torch.equal(mask[:, pair[0]], mask[:, pair[1]])
    _, kept = lower_ranks(build("qwen3"), 0.3, batches("qwen3"), Ranking.LOSS)
    assert all(mask.all() for space, mask in kept.items() if space.product == Product.QK)
    assert any(not mask.all() for space, mask in kept.items() if space.product == Product.OV)
    with pytest.raises(InputError, match="only 50% of attention's weights belong to ranks that can be low"):
        lower_ranks(build("qwen3"), 0.6, batches("qwen3"), Ranking.ENERGY)


def test_uniform_ranks_are_uniform():
    _, kept = lower_ranks(build("gpt2"), 0.5, batches(), Ranking.UNIFORM)
    assert {int(count) for mask in kept.values() for count in mask.sum(-1)} == {4}


def test_every_second_row_judges():
    tokens = torch.arange(10).reshape(5, 2)
    choosing, judging = halves([{"input_ids": tokens[:3]}, {"input_ids": tokens[3:]}])
    assert [batch["input_ids"].tolist() for batch in choosing] == [[[0, 1], [4, 5]], [[8, 9]]]
    assert [batch["input_ids"].tolist() for batch in judging] == [[[2, 3]], [[6, 7]]]
    with pytest.raises(InputError, match="give at least two, one to choose ranks by and one to judge"):
        halves([{"input_ids": tokens[:1]}])


@pytest.mark.parametrize("name", ["gpt2", "llama", "minilm", "mixtral"])
def test_a_compressed_model_loads_and_is_what_was_measured(tmp_path, name):
    model = build(name, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "model")
    done = compress_heads(tmp_path / "model", tmp_path / "small", share=0.3, batches=batches(name))
    small = load_compressed(tmp_path / "small")
    assert type(small) is type(model)
    assert {p.dtype for p in small.parameters()} == {torch.bfloat16}
    assert sum(p.numel() for p in small.parameters()) == done.parameters[1] < done.parameters[0]
    assert sum(p.numel() * p.element_size() for p in small.parameters()) == done.bytes[1]
    file = (tmp_path / "small" / "packed.safetensors").stat().st_size
    assert file == pytest.approx(done.bytes[1], abs=20_000)
    if done.loss is not None:
        assert mean_loss(small.float(), halves(batches(name))[1]) == pytest.approx(done.loss[1], rel=1e-6)
    plain = load_model(open_source(tmp_path / "small"))
    torch.testing.assert_close(output(small.float(), name), output(plain, name), rtol=1e-4, atol=1e-4)
    rankings = done.rankings.set_index("ranking")["choosing"]
    assert rankings.idxmin() == done.chosen
    assert 0.6 < done.attention[1] / done.attention[0] <= 0.7
    assert done.ranks["kept"].sum() < done.ranks["rank"].sum()


def test_a_compressed_model_is_read_by_the_other_instruments(cli, tmp_path, zoo):
    where = ("--data", zoo / "ids.json", "--out", tmp_path / "small")
    assert cli("heads", zoo / "gpt2", "--compress", 0.5, *where)[0] == 0
    code, out, _ = cli("heads", tmp_path / "small", "--json")
    assert code == 0
    ranks = {row["qk_energy_rank"] for row in json.loads(out)["heads"]}
    assert max(ranks) <= 8
    assert cli("updates", "--base-model", zoo / "gpt2", "--model", tmp_path / "small")[0] == 0


def test_a_packing_stores_runs_and_gives_zeros_back():
    value = torch.arange(12.0).reshape(3, 4)
    packing = Packing.of(1, 4, [0, 2, 3])
    assert packing.runs == ((0, 1), (2, 4))
    assert torch.equal(packing.pack(value), value[:, [0, 2, 3]])
    assert torch.equal(packing.unpack(packing.pack(value)), value * torch.tensor([1.0, 0, 1, 1]))
    nothing = Packing.of(0, 3, [])
    assert torch.equal(nothing.unpack(nothing.pack(value)), torch.zeros(3, 4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "not the specification of a packed model"),
        ({"packed": {"w": {"axis": 0, "size": 3, "kept": [[0, 9]]}}}, "keeps rows that are not there"),
        ({"packed": {"w": {"axis": 0, "size": 3, "kept": [[0, 1]]}}}, "1 rows are said to be stored"),
        ({"packed": {"x": {"axis": 0, "size": 3, "kept": [[0, 1]]}}}, "has no tensor 'x'"),
    ],
)
def test_a_damaged_specification_is_refused(refuses, tmp_path, content, message):
    from safetensors.torch import save_file

    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"w": torch.ones(2, 2)}, folder / "packed.safetensors")
    (folder / "packed.json").write_text(json.dumps(content))
    refuses("heads", folder, saying=message)


def test_a_plain_folder_is_no_compressed_model(zoo):
    with pytest.raises(InputError, match="Load the model with transformers' from_pretrained"):
        load_compressed(zoo / "gpt2")


def test_torchs_own_layer_keeps_its_projections_in_one_tensor():
    layer = torch.nn.MultiheadAttention(16, 2)
    with pytest.raises(InputError, match="not in layers of their own, so they cannot be exchanged"):
        head_spaces(open_checkpoint(layer, heads=2))


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_a_share_lies_between_nothing_and_all(tmp_path, share):
    with pytest.raises(InputError, match=r"a share of attention's weights lies in \(0, 1\)"):
        compress_heads(build("gpt2"), tmp_path / "small", share=share, batches=batches())
