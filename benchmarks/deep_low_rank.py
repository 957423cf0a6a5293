"""Which start and learning rate make deep encoders good, at low rank and full? The trials behind EXPERIMENTS.md of amsel2024.

    python benchmarks/deep_low_rank.py --steps 4000 --layers 3 --rates 0.01 0.03 --start "towards answer"

prints the error of every seed at every rank, how many steps overflowed, and with --learned what the layers of full-rank
seeds have become. The defaults are a size for one core; --device cuda with --dim 64 --tokens 16 --hidden 2048 --batch 256 is
the paper's, and there the authors' recipe, cut at 15,000 of its 100,000 steps, is

    --steps 100000 --stop 15000 --start pytorch --warmup 0.05 --depth-power 0 --rates 0.01
"""

import argparse
import time
from collections.abc import Iterator
from typing import cast

import torch

from rankscope.ensembles.encoder import Encoder, Positions, key_query_products
from rankscope.lab import Cell, Job
from rankscope.linalg.weights import Weights
from rankscope.papers.amsel2024.measurement import identity_fit, records
from rankscope.papers.amsel2024.recipe import OUR_RECIPE, Recipe, Start
from rankscope.papers.amsel2024.training import train_group
from rankscope.tasks.neighbors import Neighbors, Target
from rankscope.training.precision import Precision


def cells(options: argparse.Namespace, train: Recipe) -> list[Cell]:
    """Every rank with every seed."""
    task = Neighbors(dim=options.dim, tokens=options.tokens, target=Target.FARTHEST)
    model = Encoder(
        dim=options.dim, rank=1, budget=options.budget, layers=options.layers, hidden=options.hidden,
        positions=Positions(options.positions),
    )  # fmt: skip
    return [
        Cell("deep low rank", task, model.replace(rank=rank), train, seed=seed, point=(("rank", rank),))
        for rank in options.ranks
        for seed in range(options.seeds)
    ]


def learned(group: list[Cell], weights: Weights) -> Iterator[str]:
    """For full-rank members, layer by layer: W_KᵀW_Q and W_O W_V against +I, over heads."""
    for member, cell in enumerate(group):
        model = cast(Encoder, cell.model)
        if model.rank != model.width:
            continue
        for layer in range(model.layers):
            w_o, w_v = (weights[name][member, layer] for name in ("w_o", "w_v"))
            outputs = w_o.view(-1, model.heads, model.rank).transpose(0, 1) @ w_v.view(
                model.heads, model.rank, -1
            )
            both = {
                "scores": key_query_products(model, weights, member, layer),
                "outputs": outputs / model.budget,
            }
            fits = {name: identity_fit(products.cpu()) for name, products in both.items()}
            told = (f"{name} {fit['angle']:.0f}° of norm {fit['norm']:.3g}" for name, fit in fits.items())
            yield f"  seed {cell.seed}, layer {layer + 1}: {', '.join(told)}"


def main() -> None:
    """One training of all ranks and seeds for each learning rate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name, value in {
        "dim": 16, "tokens": 8, "hidden": 128, "batch": 128, "layers": 3, "budget": 1, "seeds": 3, "steps": 4000,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--stop", type=int, help="steps after which to stop, the schedule unchanged")
    parser.add_argument("--positions", choices=[one.value for one in Positions], default=Positions.NONE.value)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01], help="times layers^(−depth power)")
    parser.add_argument("--depth-power", type=float, default=OUR_RECIPE.depth_power)
    parser.add_argument("--warmup", type=float, default=OUR_RECIPE.warmup)
    parser.add_argument("--start", choices=[one.value for one in Start], default=OUR_RECIPE.start.value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--precision", choices=[one.value for one in Precision], help="float16 on a GPU, else float32"
    )
    parser.add_argument(
        "--learned", action="store_true", help="angles to +I of what each full-rank layer has learned"
    )
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    precision = Precision(options.precision or ("float32" if options.device == "cpu" else "float16"))
    for rate in options.rates:
        train = OUR_RECIPE.replace(
            steps=options.steps, batch=options.batch, learning_rate=rate, warmup=options.warmup,
            depth_power=options.depth_power, start=Start(options.start), precision=precision,
        )  # fmt: skip
        start = time.perf_counter()
        group = cells(options, train)
        weights, losses = train_group(group, Job(options.device, steps=options.stop))
        errors: dict[int, list[float]] = {}
        left_out = 0
        for record in records(group, weights, losses, options.device):
            errors.setdefault(int(record["rank"]), []).append(round(float(record["error"]), 4))
            left_out += int(record["left_out"])
        took = time.perf_counter() - start
        print(f"learning rate {rate:g}: {errors}, {left_out} steps left out, {took:.0f} s", flush=True)
        if options.learned:
            print(*learned(group, weights), sep="\n", flush=True)


if __name__ == "__main__":
    main()
