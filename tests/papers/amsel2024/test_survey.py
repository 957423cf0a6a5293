"""The survey says what the talk's table says, and its computed columns are right."""

import pytest

from rankscope.papers.amsel2024.survey import survey

TALK = {  # model as in the talk: dim, layers, hidden/dim, rank, heads·rank/dim
    "Transformer (Attention is all you need)": (512, 6, 4, 64, 1),
    "GPT and GPT-2": (768, 12, 4, 64, 1),
    "BERT-Large": (1024, 24, 4, 64, 1),
    "ViT-Huge": (1280, 32, 4, 80, 1),
    "CLIP (text encoder)": (1024, 12, 4, 64, 1),
    "Jurassic-1": (13824, 76, 4, 144, 1),
    "Gopher 280B": (16384, 80, 4, 128, 1),
    "LaMDA": (8192, 64, 8, 128, 2),
    "Chinchilla 70B": (8192, 80, 4, 128, 1),
    "GPT-3": (12288, 96, 4, 128, 1),
    "PaLM": (18432, 118, 4, 256, 2 / 3),
    "LLaMA and Llama 2": (8192, 80, 8 / 3, 128, 1),
    "OLMo": (8192, 80, 8 / 3, 128, 1),
}

TALK_ROWS = len(TALK)


def test_the_talks_rows_come_first_and_are_its_own():
    talk = survey().head(TALK_ROWS)
    assert talk["source"].str.startswith("amsel2024 talk table").all()
    assert not survey().iloc[TALK_ROWS:]["source"].str.startswith("amsel2024").any()
    assert list(talk["model"]) == list(TALK)
    for row in talk.itertuples():
        dim, layers, widening, rank, budget = TALK[row.model]
        assert (row.dim, row.layers, row.rank, row.value_rank) == (dim, layers, rank, rank)
        assert row.budget == pytest.approx(budget)
        assert row.hidden == pytest.approx(widening * dim, rel=0.01)  # 8d/3 is rounded up to 256s


def test_rows_are_whole_and_possible():
    table = survey()
    assert not table.isna().any().any()
    assert table["model"].is_unique
    assert table["year"].between(2017, 2026).all()
    assert (table["rank"] <= table["dim"]).all()
    assert (table["heads"] % table["kv_heads"] == 0).all()


def test_computed_columns():
    table = survey().set_index("model")
    gpt3 = table.loc["GPT-3"]
    assert gpt3["budget"] == 1
    assert gpt3["attention_parameters"] == 4 * 12288**2
    llama = table.loc["Llama 3 70B"]  # wq, wo: 8192²; wk, wv: 8192 × 1024
    assert llama["attention_parameters"] == 2 * 8192**2 + 2 * 8192 * 1024
    deepseek = table.loc["DeepSeek-V3"]
    assert deepseek["attention_parameters"] == 2 * 7168 * 128 * (192 + 128)
    assert table.loc["T5 11B", "budget"] == 16


def test_rank_stands_still_while_dim_grows():
    """What the talk reads off its table: dim spans a factor 36, rank stays on the order of 100."""
    talk = survey().head(TALK_ROWS)
    assert talk["dim"].max() / talk["dim"].min() == 36
    assert talk["rank"].max() / talk["rank"].min() == 4
    assert talk["rank"].median() == 128
