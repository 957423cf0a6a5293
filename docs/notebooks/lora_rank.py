import marimo

app = marimo.App()


@app.cell
def _(mo):
    mo.md(r"""
    # Which LoRA rank does my layer need?

    You have a model before and after training. What training added to a layer is ΔW = W(after) − W(before). If ΔW has few
    directions, a LoRA of that rank holds it, and a larger one wastes parameters. This notebook measures ΔW matrix by matrix, compares
    rules that choose ranks, and writes an adapter whose loss it checks.

    Set `BASE` and `TUNED` to your own models: a folder, a `.safetensors` file or a hub id. As long as they are `None`, a small Llama
    takes their place whose update is known: rank 4 in the query projections, rank 1 in the MLP's first, nothing elsewhere.
    """)


@app.cell
def _():
    import tempfile

    import marimo as mo
    import torch
    import transformers

    import rankscope
    from rankscope.scope.rules import compare_rules

    return compare_rules, mo, rankscope, tempfile, torch, transformers


@app.cell
def _(tempfile, torch, transformers):
    BASE, TUNED = None, None

    def planted(folder):
        """A small Llama before and after a known update."""
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
            vocab_size=64, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
        model.save_pretrained(f"{folder}/base")
        with torch.no_grad():
            for name, weight in model.named_parameters():
                rank = 4 if "q_proj" in name else 1 if "gate_proj" in name else 0
                if rank:
                    rows, columns = weight.shape
                    weight.add_(0.05 * torch.randn(rows, rank) @ torch.randn(rank, columns))
        model.save_pretrained(f"{folder}/tuned")
        return f"{folder}/base", f"{folder}/tuned"

    folder = tempfile.mkdtemp()
    base, tuned = (BASE, TUNED) if BASE and TUNED else planted(folder)
    return base, folder, tuned


@app.cell
def _(mo):
    mo.md(r"""
    ## Measure

    One row per matrix that changed, the largest update first. `effective_rank` counts the directions that ΔW uses, weighed by
    their size; `signal_rank` counts those that lie above the rounding of the stored weights.
    """)


@app.cell
def _(base, rankscope, tuned):
    scope = rankscope.measure_updates(base, tuned)
    scope
    return (scope,)


@app.cell
def _(scope):
    scope.plot()


@app.cell
def _(mo):
    mo.md(r"""
    ## Choose

    A rule turns a spectrum into a rank. `energy@0.95` keeps 95% of ‖ΔW‖², `signal` keeps every direction above the rounding.
    Here `signal` finds the ranks that were planted: 4 and 1.
    """)


@app.cell
def _(compare_rules, scope):
    ranks = compare_rules(scope)
    ranks
    return (ranks,)


@app.cell
def _(mo):
    mo.md(r"""
    ## Export

    `export_adapter` writes a PEFT adapter with a rank of its own for every matrix, loads it on the base, runs both models, and says
    what is lost. On the command line: `rankscope updates --base-model BASE --model TUNED --rule signal --out adapter`.
    """)


@app.cell
def _(base, folder, rankscope, tuned):
    adapter = rankscope.export_adapter(base, tuned, f"{folder}/adapter", rule="signal")
    adapter.fidelity.sentence()
    return (adapter,)


if __name__ == "__main__":
    app.run()
