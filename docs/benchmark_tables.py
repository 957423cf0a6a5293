"""Tables of benchmarks from the JSON beside each script; run as a script, it writes them where pages mark a place."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
ABOUT = ("device", "machine", "torch", "triton", "python", "threads", "commit", "versions")
"""Fields that say where a benchmark was run."""


def pages() -> list[Path]:
    """Pages that may have such tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text: str) -> str:
    """A page with the tables of today's JSON in their places."""
    return PLACE.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}\n{place[3]}", text)


def read(name: str) -> Any:
    """What a benchmark wrote."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text("utf-8"))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def digits(value: float, count: int = 2) -> str:
    """A number with so many digits that count, and all of them before the point."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if value == 0 or abs(value) >= 10**count:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.{count - 1}e}"
    return f"{value:#.{count}g}".rstrip(".")


def span(values: Sequence[float], count: int = 2) -> str:
    """The least and the greatest."""
    return f"{digits(min(values), count)} – {digits(max(values), count)}"


def ensemble() -> str:
    """64 trainings against one after the other."""
    found = [read("ensemble"), read("ensemble-gpu")]
    return table(
        ("machine", "plain", "ours", "ratio (least … greatest of the pairs)"),
        [
            (
                f"{one['device']}, torch {one['torch'].partition('+')[0]}",
                f"{digits(one['trainings_per_second']['plain'])} trainings/s",
                f"{digits(one['trainings_per_second']['ours'])} trainings/s",
                "{} ({} … {})".format(*(digits(one["ratio"][of]) for of in ("median", "least", "greatest"))),
            )
            for one in found
        ],
    )


def gpu_training() -> str:
    """Model-steps per second by layers and budget, over the ranks."""
    cells = read("gpu_training")["cells"]
    rows = []
    for place in dict.fromkeys((cell["layers"], cell["budget"]) for cell in cells):
        of = [cell for cell in cells if (cell["layers"], cell["budget"]) == place]
        column = {name: [cell[name] for cell in of] for name in of[0] if name != "bound"}
        rows.append(
            (
                f"{place[0]}, {place[1]}",
                span(column["stock_per_s"]),
                span(column["ours_per_s"]),
                span(column["ratio"]),
                digits(min(column["least_ratio"])),
                f"{min(column['roofline_share']):.0%} – {max(column['roofline_share']):.0%}",
            )
        )
    header = ("layers, budget", "stock modules, eager float32", "ours, bfloat16", "ratio", "least ratio of a turn",
              "share of the roofline")  # fmt: skip
    return table(header, rows)


def gpu_profile() -> str:
    """Microseconds of attention by rank."""
    found = read("gpu_profile")["attention"]
    return table(
        ("rank", *(one["rank"] for one in found)),
        [(what, *(digits(one[what]) for one in found)) for what in ("forward", "backward")],
    )


def gpu_attention() -> str:
    """Microseconds of forward and backward, ours, torch's: the ratio."""
    shapes = {(one["precision"], one["tokens"], one["rank"]): one for one in read("gpu_attention")["shapes"]}
    kinds = list(dict.fromkeys(kind for kind, *_ in shapes))
    named = {"tf32": "TF32"}

    def cell(one: dict[str, Any]) -> str:
        ours, stock = (digits(one[who]["both_us"][0]) for who in ("ours", "stock"))
        return f"{ours}, {stock}: {digits(one['stock_over_ours'])}"

    places = dict.fromkeys((tokens, rank) for _, tokens, rank in shapes)
    return table(
        ("tokens, rank", *(named.get(kind, kind) for kind in kinds)),
        [
            (f"{tokens}, {rank}", *(cell(shapes[kind, tokens, rank]) for kind in kinds))
            for tokens, rank in sorted(places)
        ],
    )


def gpu_in_context() -> str:
    """Model-steps per second of stock GPT-2 and of the stack, in every run and size."""
    newest, rows = read("gpu_in_context"), []
    for found in (
        *newest.get("earlier", ()),
        *({"commit": newest["commit"], **size} for size in newest["sizes"]),
    ):
        for who in ("eager", "compiled", "compiled bfloat16"):
            if who in found:
                middle, *ends = found[f"ours over {who}"]
                rate, ours = digits(found[who]["per_s"], 3), digits(found["ours"]["per_s"], 3)
                place = (found["commit"][:7], found["size"])
                rows.append((*place, who, rate, ours, digits(middle), span(ends)))
    return table(("commit", "size", "stock GPT-2", "its steps/s", "ours", "ratio", "of single turns"), rows)


def causal_attention() -> str:
    """Microseconds of forward and backward, ours, torch's: the ratio."""
    found = {
        (one["precision"], one["tokens"], one["rank"]): one for one in read("gpu_in_context")["attention"]
    }
    kinds = list(dict.fromkeys((precision, tokens) for precision, tokens, _ in found))

    def cell(one: dict[str, Any]) -> str:
        return f"{digits(one['ours_us'])}, {digits(one['stock_us'])}: {digits(one['ratio'])}"

    return table(
        ("rank", *(f"{tokens} tokens, {precision}" for precision, tokens in kinds)),
        [
            (rank, *(cell(found[precision, tokens, rank]) for precision, tokens in kinds))
            for rank in dict.fromkeys(rank for *_, rank in found)
        ],
    )


def gpu_precision() -> str:
    """Errors of the seeds in each precision."""
    rows = []
    for one in read("gpu_precision")["trainings"]:
        place = f"{one['layers']}, {one['budget']}, {one['rank']}, {one['steps']:,}"
        errors = " ".join(f"{error:.4f}" for error in one["errors"])
        rows.append((place, one["precision"], errors, f"{one['mean']:.4f}", f"{one['spread']:.4f}"))
    return table(("layers, budget, rank, steps", "precision", "errors of the seeds", "mean", "spread"), rows)


def rounding_floor() -> str:
    """The error of a head of sharpness β with everything rounded."""
    found = read("rounding_floor")
    return table(
        ("β", *(f"{beta:,}" for beta in found["sharpness"])),
        [(name, *(f"{error:.4f}" for error in errors)) for name, errors in found["errors"].items()],
    )


def spectra_gpu() -> str:
    """Singular values and factors against cuSOLVER."""
    rows = []
    for name, one in read("spectra-gpu")["matrices"].items():
        rows.append(
            (
                name.replace("_", " ").replace("x", " × "),
                f"{digits(one['values_seconds'])}, {digits(one['svdvals_seconds'])}",
                digits(one["values_speedup"]),
                f"{digits(one['values_error'], 1)}, {digits(one['svdvals_error'], 1)}",
                f"{digits(one['factors_seconds'])}, {digits(one['svd_seconds'])}",
                digits(one["factors_speedup"]),
                digits(one["factors_known_spectrum_speedup"]),
            )
        )
    header = ("matrix", "all values: ours, torch (s)", "ratio", "error of σ/σ₁: ours, torch",
              "rank-64 factors: ours, full SVD (s)", "ratio", "with the spectrum known")  # fmt: skip
    return table(header, rows)


def retrieval() -> str:
    """Exact search beside two peers, and the whole instrument, for every size."""
    rows = []
    for size in read("retrieval")["sizes"]:
        *ways, whole = size["ways"]
        rows.append(
            (
                f"{size['rows']:,} × {size['dim']}",
                *(
                    f"{digits(way['seconds'])} s ({span([way['least'], way['most']])}), {way['added_mib']:,.0f} MiB"
                    + (f"; {span(way['over_scope_range'])} times ours" if place else "")
                    for place, way in enumerate(ways)
                ),
                f"{digits(whole['seconds'])} s, {whole['added_mib']:,.0f} MiB",
            )
        )
    return table(
        (
            "rows × dims",
            *("ours" if way["way"] == "scope" else way["way"] for way in ways),
            "all ranks, ours",
        ),
        rows,
    )


WAYS = {
    "heads, as --compress chooses": "heads, as `--compress` chooses",
    "heads, uniform": "heads, one rank for all",
    "heads, plain": "heads, one rank, the plain SVD of QK and OV",
    "plain SVD of the projections": "plain SVD of the projections",
    "ASVD": "ASVD",
    "SVD-LLM": "SVD-LLM",
}
"""The ways of the table of compression, and how it calls them."""


def compression() -> str:
    """What every way adds to the loss, by the share of attention's weights that stays."""
    rows, content = [], read("compression")
    shares = sorted({one["share"] for found in content.values() for one in found["ways"]})
    for model, found in content.items():
        added = {
            (one["way"], one["share"]): [
                after - before for after, before in zip(one["losses"], found["before"], strict=True)
            ]
            for one in found["ways"]
        }
        means = {place: sum(values) / len(values) for place, values in added.items()}
        least = {share: min(means[way, share] for way in WAYS if (way, share) in means) for _, share in means}
        whole, silent = (sum(found[what]) / found["splits"] for what in ("before", "without_attention"))
        rows.append((f"**{model}**: {digits(round(whole, 6), 3)}, without attention {digits(silent, 3)}",))
        for way, name in WAYS.items():
            cells = []
            for share in shares:
                if (way, share) not in means:
                    cells.append("–")
                    continue
                ends = (means[way, share], min(added[way, share]), max(added[way, share]))
                cell = "{:.4f} ({:.4f} … {:.4f})".format(*(round(end, 4) + 0.0 for end in ends))
                cells.append(f"**{cell}**" if ends[0] == least[share] else cell)
            rows.append((name, *cells))
    header = ("loss of the whole; way", *(f"keeps {1 - share:.0%}" for share in shares))
    return table(header, [(*row, *[""] * (len(header) - len(row))) for row in rows])


def adapters() -> str:
    """Seconds, memory and error of an adapter from two checkpoints."""
    rows = []
    for pair, found in read("adapters").items():
        for step, one in found.items():
            if isinstance(one, dict):
                error = digits(one["output_error"]) if "output_error" in one else ""
                peak = digits(one["peak_mib"] / 1024) if "peak_mib" in one else ""
                rows.append((pair, step, digits(one["cpu_seconds"]), peak, error))
    header = ("pair", "step", "CPU seconds", "peak memory (GiB)", "error of the output")
    return table(header, rows)


TABLES: dict[str, Callable[[], str]] = {
    function.__name__: function
    for function in (
        adapters, compression, ensemble, gpu_training, gpu_profile, gpu_attention, gpu_in_context,
        causal_attention, gpu_precision, retrieval, rounding_floor,
        spectra_gpu,
    )
}  # fmt: skip
"""Tables by the name that a page marks their place with."""


def benchmark_page() -> str:
    """Every benchmark: what its script asks, where it was run, and what it measured."""
    parts = [
        "# Benchmarks",
        "Each script under `benchmarks/` answers one question. Where there is a peer, it measures the peer and ours in the "
        "same run. This page is generated from the JSON that the scripts write.",
    ]
    for file in sorted(BENCHMARKS.glob("*.json")):
        content = json.loads(file.read_text("utf-8"))
        script = BENCHMARKS / f"{file.stem.removesuffix('-gpu')}.py"
        if not script.exists():  # a study of another script's
            script = BENCHMARKS / "gpu_training.py"
        asked = script.read_text("utf-8").split('"""')[1].strip().split("\n\n")[0].replace("\n", " ")
        parts += [f"## {file.stem}", f"`benchmarks/{script.name}`: {asked}", *_described(content)]
    return "\n\n".join(parts) + "\n"


def _described(content: Any) -> list[str]:
    """A benchmark's content: where it was run, single values, then tables."""
    content = {"measured": content} if isinstance(content, list) else content
    about = [f"{name} {_plain(content[name])}" for name in ABOUT if name in content]
    single = {k: v for k, v in content.items() if k not in ABOUT and not isinstance(v, list | dict)}
    parts = ["Run with " + ", ".join(about) + "."] if about else []
    if single:
        parts.append(table(("quantity", "value"), [(_words(k), _plain(v)) for k, v in single.items()]))
    for name, value in content.items():
        rows = _rows(value) if name not in ABOUT else []
        if rows:
            columns = list(dict.fromkeys(column for row in rows for column in row))
            parts.append(f"**{_words(name)}**")
            parts.append(
                table(
                    [_words(one) for one in columns],
                    [[_plain(row.get(one, "")) for one in columns] for row in rows],
                )
            )
    return parts


def _rows(value: Any) -> list[dict[str, Any]]:
    """A list of records, or records by name, as rows of a table; what is deeper is named by its path."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return [_flat(one) for one in value]
    if isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values()):
        return [{"": name, **_flat(one)} for name, one in value.items()]
    if isinstance(value, dict) and value:
        return [{"": name, "value": one} for name, one in value.items()]
    return [{"": one} for one in value] if isinstance(value, list) else []


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{name}, {inner}": one for inner, one in _flat(value).items()}
        elif not (isinstance(value, list) and value and isinstance(value[0], dict)):
            flat[name] = value
    return flat


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(one) for one in value)
    return digits(value, 3) if isinstance(value, float) else str(value)


if __name__ == "__main__":
    for page in pages():
        before = page.read_text("utf-8")
        if filled(before) != before:
            page.write_text(filled(before), "utf-8")
            print(page.relative_to(ROOT))
