import marimo

app = marimo.App()


@app.cell
def _(mo):
    mo.md(r"""
    # Set rank and heads apart in my model

    `nn.MultiheadAttention` ties the rank of a head to the number of heads: rank = dim / heads. Nothing in attention asks for that.
    `RankAttention` takes the two apart, is called like the stock module, and `replace_attention` puts it into a model that you have.
    """)


@app.cell
def _():
    import marimo as mo
    import pandas as pd
    import torch
    from torch import nn

    import rankscope
    from rankscope import RankAttention, replace_attention

    STEPS = 500  # of each training below

    return RankAttention, STEPS, mo, nn, pd, rankscope, replace_attention, torch


@app.cell
def _(mo):
    mo.md(r"""
    ## In a model that you have

    Replacing alone changes nothing: the weights are carried over, and the model stays the same function. Then a function from the
    stock module to the new one sets rank and heads apart, here eight heads of rank 8 instead of 1.
    """)


@app.cell
def _(RankAttention, nn, replace_attention, torch):
    torch.manual_seed(0)
    stock = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, nhead=8, dim_feedforward=32, dropout=0.0, batch_first=True),
        num_layers=1,
    )
    tokens = torch.randn(4, 5, 8)
    before = stock(tokens)
    replaced = replace_attention(stock)
    same = torch.allclose(stock(tokens), before, atol=1e-5)
    wide = nn.TransformerEncoderLayer(8, nhead=8, dim_feedforward=32, batch_first=True)
    replace_attention(
        wide, lambda old: RankAttention(old.embed_dim, heads=old.num_heads, rank=8, batch_first=True)
    )
    f"{replaced} layer replaced; the same function: {same}; then {wide.self_attn.heads} heads of rank {wide.self_attn.rank}"
    return same, wide


@app.cell
def _(mo):
    mo.md(r"""
    ## What the choice costs

    Heads times rank decides how many parameters a layer has. Eight heads of rank 1 and one head of rank 8 have the same number, and
    theory says what the first cannot do, whatever the training: on the nearest of two points, its error stays above this floor.
    """)


@app.cell
def _(pd, rankscope):
    layers = pd.DataFrame(
        [
            {
                "heads": heads,
                "rank": 8 // heads,
                "parameters": 4 * 8 * 8,
                "floor": rankscope.error_floor(dim=8, rank=8 // heads, heads=heads),
            }
            for heads in (8, 4, 2, 1)
        ]
    )
    layers
    return (layers,)


@app.cell
def _(rankscope):
    rankscope.plan(dim=64).plot()


@app.cell
def _(mo):
    mo.md(r"""
    ## Train both

    The task: for each of five points on a sphere, name the farthest of the others. Both layers have the same parameters, data and
    steps. An error of 1 is that of answering nothing. One head of full rank learns to look for the opposite of its own point; eight
    heads that see one direction each cannot.
    """)


@app.cell
def _(RankAttention, STEPS, nn, torch):
    def batch(seed):
        generator = torch.Generator().manual_seed(seed)
        points = nn.functional.normalize(torch.randn(128, 5, 8, generator=generator), dim=-1)
        farthest = (points @ points.mT).argmin(-1, keepdim=True).expand_as(points)
        return points, points.gather(1, farthest)

    def trained(heads, rank):
        torch.manual_seed(1)
        layer = RankAttention(8, heads=heads, rank=rank, batch_first=True)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.02, weight_decay=0.0)
        for step in range(STEPS):
            points, answer = batch(step)
            loss = (layer(points, points, points)[0] - answer).square().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        points, answer = batch(10**6)
        with torch.no_grad():
            return layer, float((layer(points, points, points)[0] - answer).square().sum(-1).mean())

    thin, thin_error = trained(heads=8, rank=1)
    full, full_error = trained(heads=1, rank=8)
    f"8 heads of rank 1: error {thin_error:.2f}; 1 head of rank 8: error {full_error:.2f}"
    return full, full_error, thin, thin_error


@app.cell
def _(mo):
    mo.md(r"""
    ## Look inside

    A head's W_KᵀW_Q shows itself: its measured ranks, and its singular values. On a whole checkpoint, `rankscope.measure_heads` does
    this for every head ([how](../scope.md)).
    """)


@app.cell
def _(full):
    head = full.qk(0)
    head
    return (head,)


@app.cell
def _(head):
    head.plot()


if __name__ == "__main__":
    app.run()
