"""Every fused operator against float64, and torch's own checks of an operator.

Run as a program it prints the relative errors as JSON: with TRITON_INTERPRET=1 that needs no GPU.
"""

import json
import math
import sys
from unittest import mock

import torch
from torch.nn import functional

from rankscope.ensembles import encoder as stacked_encoder
from rankscope.ensembles.encoder import Program
from rankscope.ensembles.head_sum import HeadSum
from rankscope.kernels.angles import _product as angles_op
from rankscope.kernels.angles import angle_product
from rankscope.kernels.attention import _forward as attention_op
from rankscope.kernels.attention import short_attention, token_first
from rankscope.kernels.error import _forward as error_op
from rankscope.kernels.error import squared_error
from rankscope.kernels.mlp import _forward as mlp_op
from rankscope.kernels.mlp import stacked_mlp
from rankscope.kernels.norm import _forward as norm_op
from rankscope.kernels.norm import residual_norm
from rankscope.kernels.normals import _fill as normals_op
from rankscope.kernels.normals import normals
from rankscope.kernels.small_attention import Way
from rankscope.lab import Cell
from rankscope.papers.amsel2024 import two_points
from rankscope.papers.amsel2024.batches import DrawnThere
from rankscope.papers.amsel2024.recipe import OUR_RECIPE
from rankscope.tasks.neighbors import Neighbors, Points, Queries, Target
from rankscope.training.adamw import AdamW
from rankscope.training.precision import Precision

SMALL = [
    ((1,), 2, 3, 5),
    ((1, 1, 3), 3, 2, 4),
    ((2, 8, 8), 8, 3, 7),
    ((4,), 4, 2, 17),
    ((1, 2), 2, 2, 37),
    ((1, 4), 4, 70, 9),
    ((16,), 32, 5, 16),
    ((10,), 20, 3, 20),
    ((32,), 32, 2, 70),
    ((64,), 64, 2, 40),
]
"""Ranks of the members, channels, samples, tokens: one lane a sample, and one program, or several; whole blocks and not."""

LONG = [((8,), 8, 2, 256), ((64,), 64, 2, 64), ((16,), 32, 5, 5)]
"""On the matrix units."""


def plain_attention(q, k, v, ranks, tokens):
    found = []
    for member, rank in enumerate(ranks):
        channels, positions = q[member].shape
        samples = positions // tokens
        places = (tokens, samples) if token_first(rank) else (samples, tokens)

        def heads(array, member=member, rank=rank, channels=channels, places=places):
            parts = array[member].reshape(channels // rank, rank, *places)
            return parts.permute(3, 0, 2, 1) if token_first(rank) else parts.permute(2, 0, 3, 1)

        out = functional.scaled_dot_product_attention(heads(q), heads(k), heads(v))
        out = out.permute(1, 3, 2, 0) if token_first(rank) else out.permute(1, 3, 0, 2)
        found.append(out.reshape(channels, positions))
    return torch.stack(found)


def plain_mlp(x, w_in, b_in, w_out):
    return torch.bmm(w_out, torch.relu(torch.baddbmm(b_in.unsqueeze(-1), w_in, x)))


def plain_norm(x, branch, bias, scale):
    z = x + branch + bias.unsqueeze(-1)
    return scale.view(-1, 1, 1) * z / z.norm(dim=1, keepdim=True)


def plain_error(output, answer):
    return (output - answer).square().sum(1).mean(1)


def errors(ours, plain, arrays):
    """‖ours − plain‖/‖plain‖ of the value and of every gradient; plain is computed in float64 of the same numbers."""
    leaves = [array.detach().clone().requires_grad_() for array in arrays]
    exact = [array.detach().double().requires_grad_() for array in arrays]
    value, wanted = ours(*leaves), plain(*exact)
    pull = torch.randn_like(value)
    value.backward(pull)
    wanted.backward(pull.double())
    pairs = [(value, wanted)] + [(a.grad, b.grad) for a, b in zip(leaves, exact, strict=True)]
    return [float((a.detach().double() - b.detach()).norm() / b.detach().norm()) for a, b in pairs]


def attention_errors(ranks, channels, samples, tokens, dtype, device, apart=0.0):
    """Random arrays; `apart` takes all queries to one side and all keys to the other, so that every score is far below 0."""
    arrays = [
        (1.5 * torch.randn(len(ranks), channels, samples * tokens, device=device) + shift).to(dtype)
        for shift in (-apart, apart, 0.0)
    ]
    return errors(
        lambda q, k, v: short_attention(torch.cat([q, k, v], dim=1), ranks, tokens),
        lambda q, k, v: plain_attention(q, k, v, ranks, tokens),
        arrays,
    )


def attention_errors_in_tf32(*case, device):
    with Precision.TF32.in_use():
        return attention_errors(*case, torch.float32, device)


def mlp_errors(members, dim, positions, hidden, dtype, device):
    x = torch.randn(members, dim, positions, device=device).to(dtype)
    w_in = torch.randn(members, hidden, dim, device=device) / math.sqrt(dim)
    b_in = torch.randn(members, hidden, device=device)
    w_out = torch.randn(members, dim, hidden, device=device) / math.sqrt(hidden)
    # weights that the kernel need not round: a unit near zero must be on for both, or off
    weights = [weight.to(dtype).float() for weight in (w_in, b_in, w_out)]
    return errors(stacked_mlp, plain_mlp, [x, *weights])


def norm_errors(members, dim, positions, dtype, device):
    x, branch = (torch.randn(members, dim, positions, device=device).to(dtype) for _ in range(2))
    bias, scale = torch.randn(members, dim, device=device), torch.randn(members, device=device)
    return errors(residual_norm, plain_norm, [x, branch, bias, scale])


def error_errors(members, dim, positions, dtype, device):
    output = torch.randn(members, dim, positions, device=device).to(dtype)
    answer = torch.randn(members, dim, positions, device=device)
    return errors(
        lambda one: squared_error(one, answer), lambda one: plain_error(one, answer.double()), [output]
    )


def angle_errors(heads, dim, device):
    """Of the product by the matrix of angles, relative to its size; a vector's angle to itself is steep."""
    q, k = functional.normalize(torch.randn(2, heads, dim, device=device), dim=-1)
    vector = torch.randn(heads, device=device)
    exact = [(x.double() @ x.double().T).fill_diagonal_(1).clamp(-1, 1).asin() for x in (q, k)]
    wanted = (exact[0] * exact[1]) @ vector.double()
    return [float((angle_product(q, k, vector) - wanted).norm() / wanted.norm())]


def encoder_errors(device):
    """A whole encoder, every operator fused, against the same encoder by plain products: its output and all gradients."""
    models = [
        stacked_encoder.Encoder(
            dim=16, rank=rank, budget=2, layers=2, hidden=40, positions=stacked_encoder.Positions.CONCATENATED
        )
        for rank in (1, 1, 16, 16)
    ]
    weights = stacked_encoder.init(models, range(4), tokens=6, device=device)
    # far from zero: a hidden unit that one rounding turns on and another off would be no error of either
    weights["b_in"] = 2 * weights["b_in"].sign()
    points = functional.normalize(torch.randn(4, 5, 6, 16, device=device), dim=-1)
    found = []
    # in plain float32 the MLP would not be fused
    for way, fused, precision in (
        (Way.FUSED, True, Precision.TF32),
        (Way.STOCK, False, Precision.FLOAT32),
    ):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        with precision.in_use():
            out = stacked_encoder.forward(models, leaves, points, Program(way, fused, torch.float32))
            out.square().sum(-1).cos().sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in leaves.values())])
    # a bias of keys moves no softmax: its gradient is rounding of the others
    least = 1e-3 * max(float(array.norm()) for array in found[1])
    return [
        float((ours - plain).norm()) / max(float(plain.norm()), least)
        for ours, plain in zip(*found, strict=True)
    ]


def check_operators(device):
    """torch's own checks: schema, autograd, fake tensors, and the trace that compilation takes."""

    def leaf(*shape):
        return torch.randn(*shape, device=device, requires_grad=True)

    torch.library.opcheck(attention_op, (leaf(2, 3 * 4, 6), [1, 2], 3))
    w_in, w_out = leaf(2, 5, 4), leaf(2, 4, 5)
    torch.library.opcheck(mlp_op, (leaf(2, 4, 6), w_in, leaf(2, 5), w_out, w_in.detach(), w_out.detach()))
    if device == "cuda":  # the interpreter has no loop of a length that is not known before
        torch.library.opcheck(
            angles_op, (*torch.randn(2, 9, 3, device=device), torch.randn(9, device=device))
        )
    torch.library.opcheck(norm_op, (leaf(2, 4, 6), leaf(2, 4, 6), leaf(2, 4), leaf(2)))
    torch.library.opcheck(error_op, (leaf(2, 4, 6), torch.randn(2, 4, 6, device=device)))
    keys, step = torch.tensor([3, 4], device=device), torch.tensor([7], device=device)
    torch.library.opcheck(normals_op, (keys, step, 10))
    for function, arguments in (
        (short_attention, (leaf(2, 3 * 8, 12), [1, 8], 4)),
        (stacked_mlp, (leaf(2, 4, 6), w_in, leaf(2, 5), w_out)),
        (residual_norm, (leaf(2, 4, 6), leaf(2, 4, 6), leaf(2, 4), leaf(2))),
        (squared_error, (leaf(2, 4, 6), leaf(2, 4, 6).detach())),
    ):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
        torch.testing.assert_close(compiled(*arguments), function(*arguments))


def samples_with_nan(rank, device):
    """Of three samples, which have NaN in their output or gradients if the second one's keys and values have."""
    tokens, samples = 9, 3
    arrays = [torch.randn(1, 2 * rank, tokens * samples, device=device) for _ in range(3)]
    places = (tokens, samples) if token_first(rank) else (samples, tokens)
    first_token_of_second_sample = (0, 1) if token_first(rank) else (1, 0)
    # all bits are set, as a GPU makes them
    nan = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    for array in arrays[1:]:
        array.view(1, 2 * rank, *places)[(..., *first_token_of_second_sample)] = nan
    q, k, v = (array.requires_grad_() for array in arrays)
    out = short_attention(torch.cat([q, k, v], dim=1), [rank], tokens)
    out.sum().backward()
    broken = sum(array.isnan() for array in (out, q.grad, k.grad, v.grad)).view(-1, *places)
    return broken.sum((0, 1) if token_first(rank) else (0, 2)).bool().tolist()


def normal_moments(device):
    """Mean, variance and excess kurtosis of drawn numbers, and whether key and step alone decide them."""
    keys, step = torch.tensor([3, 4], device=device), torch.tensor([7], device=device)
    drawn = normals(keys, step, 20_000)
    return {
        "mean": float(drawn.mean()),
        "variance": float(drawn.var()),
        "kurtosis": float((drawn**4).mean() - 3),
        "correlation": float((drawn[0] * drawn[1]).mean()),
        "alone": torch.equal(normals(keys[1:], step, 20_000)[0], drawn[1]),
        "next": torch.equal(normals(keys, step + 1, 20_000), drawn),
    }


def drawn_pairs(device):
    """The same of two orthonormal points and a query."""
    task = Neighbors(
        dim=8, tokens=2, target=Target.NEAREST, points=Points.ORTHOGONAL, queries=Queries.SEPARATE
    )
    settings = AdamW(steps=9, batch=6, learning_rate=0.1)
    model = HeadSum(dim=8, rank=1, budget=1)
    cells = [Cell("drawn", task, model, settings, seed=seed, point=()) for seed in (3, 4)]
    draw = two_points._drawn_there(cells, settings.batch, device)
    batch, later = draw(torch.tensor([7], device=device)), draw(torch.tensor([8], device=device))
    points, queries = batch.points, batch.queries
    nearest = (queries @ points.mT).argmax(-1, keepdim=True).expand(-1, -1, -1, 8)
    drawn = torch.cat([points, queries], dim=2)
    return {
        "shapes": [list(points.shape), list(queries.shape)],
        "off the frame": float((points @ points.mT - torch.eye(2, device=device)).abs().max()),
        "off the sphere": float((queries.norm(dim=-1) - 1).abs().max()),
        "wrong answers": int((points.gather(2, nearest) != batch.answer).any(-1).sum()),
        "agreement": float((queries @ points.mT).abs().max()),
        "seeds differ": not torch.equal(drawn[0], drawn[1]),
        "steps differ": not torch.equal(points, later.points),
    }


def drawn_batches(device):
    """What training on a device draws there: are the points on the sphere, and each answer the farthest of its sample?"""
    task = Neighbors(dim=8, tokens=5, target=Target.FARTHEST)
    model = stacked_encoder.Encoder(dim=8, rank=1, budget=1, layers=1, hidden=4)
    cells = [
        Cell("drawn", task, model.replace(rank=rank), OUR_RECIPE.replace(batch=6), seed=seed, point=())
        for rank in (1, 8)
        for seed in (3, 4)
    ]
    tokens, size = task.tokens, 6
    draw, mixed = (
        DrawnThere(cells, device).arranged(Program(way, fused=False, dtype=torch.float32))
        for way in (Way.STOCK, Way.FUSED)
    )
    few = OUR_RECIPE.replace(batch=6, distinct_batches=5)
    repeating = [*cells, *(Cell("drawn", task, model, few, seed=seed, point=()) for seed in (3, 4))]
    there = DrawnThere(repeating, device)
    later, earlier = (there.drawn(torch.tensor([step], device=device))[0][there.source] for step in (7, 2))
    points, answers = draw(torch.tensor([7], device=device))
    x, y = (array.mT.unflatten(1, (size, tokens)) for array in (points, answers))
    farthest = (x @ x.mT).argmin(-1, keepdim=True).expand(-1, -1, -1, x.shape[-1])
    alike = [
        torch.equal(points[i], points[j]) == (one.seed == other.seed)
        for i, one in enumerate(cells)
        for j, other in enumerate(cells)
    ]
    program = Program(Way.FUSED, fused=True, dtype=torch.float32)
    arranged = stacked_encoder.arrange([cell.model for cell in cells], x, program)
    return {
        "both orders": torch.equal(mixed(torch.tensor([7], device=device))[0], arranged),
        "off the sphere": float((x.norm(dim=-1) - 1).abs().max()),
        "wrong answers": int((x.gather(2, farthest) != y).any(-1).sum()),
        "seeds share": all(alike),
        "steps differ": not torch.equal(points, draw(torch.tensor([8], device=device))[0]),
        "a few repeat": torch.equal(later[4:], earlier[4:]) and torch.equal(earlier[4:], earlier[:2]),
        "others do not": not torch.equal(later[:4], earlier[:4]),
        "beside them": torch.equal(later[:4], x),
    }


def main():
    torch.manual_seed(0)
    found = {
        "attention": [attention_errors(*case, torch.float32, "cpu") for case in SMALL],
        "attention of scores far below 0": [
            attention_errors((1, 2), 2, 2, 37, torch.float32, "cpu", apart=12.0)
        ],
        "attention in tf32": [attention_errors_in_tf32(*case, device="cpu") for case in LONG],
        "attention in float16": [
            attention_errors(*case, torch.float16, "cpu")
            for case in (*SMALL[1:3], ((8, 16), 16, 2, 70), ((32,), 32, 2, 70))
        ],
        "mlp in float16": [mlp_errors(2, 8, 30, 32, torch.float16, "cpu")],
        "mlp": [mlp_errors(*case, torch.float32, "cpu") for case in ((2, 8, 30, 32), (1, 20, 130, 70))],
        "norm": norm_errors(2, 20, 70, torch.float32, "cpu"),
        "error": error_errors(2, 20, 300, torch.float32, "cpu"),
        "normals": normal_moments("cpu"),
        "drawn": drawn_batches("cpu"),
        "drawn pairs": drawn_pairs("cpu"),
        "nan": [samples_with_nan(rank, "cpu") for rank in (2, 8)],
    }
    with Precision.TF32.in_use():
        found["nan"].append(samples_with_nan(8, "cpu"))
    # TF32 for the MLP's sake, which the interpreter does not round; attention would round by itself
    with mock.patch("rankscope.kernels.attention.precision", return_value="ieee"):
        found["encoder"] = encoder_errors("cpu")
    check_operators("cpu")
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
