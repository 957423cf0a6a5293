"""What `import rankscope` offers, and how things show themselves."""

import subprocess
import sys

import pandas as pd
import pytest
import torch
from torch import nn

import rankscope
from rankscope.attention.rank_attention import HeadProduct
from rankscope.core import InputError


def test_every_public_name_is_found_and_documented_with_an_example_or_its_arguments():
    for name in rankscope.__all__:
        found = getattr(rankscope, name)
        assert found.__doc__, name
        assert name in dir(rankscope)
    with pytest.raises(AttributeError, match="module 'rankscope' has no attribute 'rank'"):
        rankscope.rank  # noqa: B018


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import rankscope", "set()"),
        ("import rankscope; rankscope.min_heads(64, 8, 0.1)", "set()"),
        ("import rankscope; rankscope.RankAttention", "{'torch'}"),
    ],
)
def test_torch_and_pandas_are_imported_when_they_are_needed(code, expected):
    line = f"import sys; {code}; print({{'torch', 'pandas', 'pydantic'}} & set(sys.modules) - {{'pydantic'}})"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_what_a_user_of_multihead_attention_types_is_understood():
    layer = rankscope.RankAttention(embed_dim=32, num_heads=4, kdim=16, vdim=8)
    assert (layer.dim, layer.heads, layer.rank, layer.key_dim, layer.value_dim) == (32, 4, 8, 16, 8)
    assert rankscope.RankAttention(32, 4).rank == 8
    assert rankscope.RankAttention(32, 3, 5).rank == 5


@pytest.mark.parametrize(
    ("given", "saying"),
    [
        ({"dim": 32, "embed_dim": 32, "heads": 4}, "dim=32 and embed_dim=32 are two names of one setting"),
        ({"dim": 32, "heads": 4, "num_heads": 2}, "heads=4 and num_heads=2 are two names of one setting"),
        ({"dim": 32, "heads": 4, "key_dim": 8, "kdim": 8}, "key_dim=8 and kdim=8 are two names"),
        ({"heads": 4}, r"RankAttention needs dim \(nn.MultiheadAttention's embed_dim\): give it"),
        ({"dim": 32, "heads": 3}, "dim=32 is no multiple of heads=3: give rank"),
    ],
)
def test_two_names_of_one_setting_and_none_are_refused(given, saying):
    with pytest.raises(InputError, match=saying):
        rankscope.RankAttention(**given)


def test_a_replaced_layer_is_the_public_one_and_the_same_function():
    stock = nn.TransformerEncoderLayer(16, 2, batch_first=True, dropout=0.0).eval()
    tokens = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    before = stock(tokens)
    assert rankscope.replace_attention(stock) == 1
    assert isinstance(stock.self_attn, rankscope.RankAttention)
    torch.testing.assert_close(stock(tokens), before)


def test_a_head_shows_plain_numbers():
    torch.manual_seed(0)
    product = rankscope.RankAttention(16, 2, 4).qk(1)
    dense = product.to_dense().detach()
    values = torch.linalg.svdvals(dense)[:4]
    assert product.spectrum() == pytest.approx(values.tolist(), rel=1e-4)
    assert type(product.effective_rank) is float
    assert type(product.energy_rank(0.9)) is int
    assert repr(product).startswith("HeadProduct(qk of head 1: 16 × 16, rank 4, effective_rank=")
    assert "<caption>qk of head 1, 16 × 16</caption>" in product._repr_html_()
    (axis,) = product.plot().axes
    assert list(axis.lines[0].get_ydata()) == product.spectrum()
    assert isinstance(product, HeadProduct)


def test_a_run_is_loaded_with_tables_verdicts_and_figures(finished_run):
    run = rankscope.load(finished_run)
    assert repr(run).startswith(f"Run('{finished_run}': li2024 at scale smoke;")
    assert isinstance(run.tables["li2024/regime"], pd.DataFrame)
    assert set(run.verdicts["verdict"]) <= {"holds", "fails", "undecided"}
    assert len(run.verdicts) > 20
    assert "li2024.fig1a" in run._repr_html_()
    figure = run.figures["li2024-1"]
    assert repr(figure).startswith("Figure(li2024-1: ")
    assert figure._repr_html_().startswith("<figure><svg")
    assert len(run.plot("li2024-1").axes) >= len(figure.panels)
    with pytest.raises(InputError, match=r"No figure 'li2024-11' in .* Did you mean"):
        run.plot("li2024-11")


def test_reproduce_refuses_an_unknown_scale(tmp_path):
    with pytest.raises(InputError, match=r"No scale 'smok'\. Did you mean 'smoke'\?"):
        rankscope.reproduce("li2024", scale="smok", out=tmp_path)


def test_the_stub_says_what_the_module_offers():
    import ast
    import inspect
    from pathlib import Path

    stub = ast.parse(Path(rankscope.__file__).with_suffix(".pyi").read_text())
    imported = {
        alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    defined = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert (imported | set(defined)) - {None} == set(rankscope.__all__)
    for name, node in defined.items():
        takes = [
            one.arg for one in (*node.args.args, *filter(None, [node.args.vararg]), *node.args.kwonlyargs)
        ]
        assert takes == list(inspect.signature(getattr(rankscope, name)).parameters)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2)


def test_what_the_instruments_see_shows_itself(encoder):
    tuned = {name: value.clone() for name, value in encoder.state_dict().items()}
    tuned["layers.0.linear1.weight"] += torch.outer(torch.ones(24), torch.ones(16))
    heads, neurons = rankscope.measure_heads(encoder, heads=2), rankscope.measure_neurons(encoder, heads=2)
    updates = rankscope.measure_updates(encoder, tuned)
    assert repr(heads).startswith("HeadView(4 heads use ")
    assert repr(neurons).startswith("NeuronView(48 neurons in 2 blocks;")
    assert repr(updates).startswith("UpdateView(")
    for scope in (heads, neurons, updates):
        html = scope._repr_html_()
        assert html.startswith("<p>")
        assert "<table" in html
        assert len(scope.plot().axes) >= 1
    assert "linear1" in updates._repr_html_()
    assert "linear2" not in updates._repr_html_(), "what did not change is no update"
    assert len(updates.plot("rules").axes) == 1
    with pytest.raises(InputError, match=r"No figure 'rule' here\. Did you mean 'rules'\?"):
        updates.plot("rule")


def test_a_plan_draws_the_least_floor_of_every_rank():
    plan = rankscope.plan(dim=64)
    (axis,) = plan.plot().axes
    ranks, floors = axis.lines[0].get_data()
    assert list(ranks) == [1, 2, 4, 8, 16, 32, 64]
    assert list(floors) == [plan["floor"][plan["rank"] == rank].min() for rank in ranks]
    assert "<table" in plan._repr_html_()
    assert type(plan[plan["rank"] == 8]) is pd.DataFrame, "a part of a plan is a table"


@pytest.mark.parametrize("name", sorted(set(rankscope.__all__) - {"InputError"}))
def test_a_public_name_says_its_arguments_what_it_returns_and_an_example(name):
    import inspect

    found = getattr(rankscope, name)
    said = inspect.getdoc(found)
    sections = ("Args:", "Example:") if inspect.isclass(found) else ("Args:", "Returns:", "Example:")
    for section in sections:
        assert f"\n{section}\n" in said, section
    assert ">>>" in said
    taken = inspect.signature(found.__init__ if inspect.isclass(found) else found).parameters
    missing = [
        one
        for one in taken
        if one not in ("self", "embed_dim", "num_heads", "kdim", "vdim") and f"{one}" not in said
    ]
    assert not missing
