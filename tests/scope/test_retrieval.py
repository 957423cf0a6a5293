"""Neighbours at low rank against a naive twin; files of three kinds; what is refused."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file

from rankscope.core import InputError
from rankscope.scope.retrieval import (
    LEADING,
    LEARNED,
    PASSES,
    PRINCIPAL,
    RANDOM,
    measure_retrieval,
    moments,
    tried_ranks,
)
from rankscope.scope.rows import heard, open_rows
from rankscope.theory.points.spectra import best_form, power_spectrum


@pytest.fixture
def files(tmp_path):
    """The same 600 rows of a steep spectrum, turned, as all kinds of file; and 80 queries that use other directions."""
    generator = np.random.default_rng(0)
    turn = np.linalg.qr(generator.standard_normal((24, 24)))[0]
    rows = (generator.standard_normal((600, 24)) * np.sqrt(power_spectrum(24, 1.2)) @ turn).astype(np.float32)
    asked = (generator.standard_normal((80, 24)) * np.sqrt(power_spectrum(24, 1.2)[::-1]) @ turn).astype(
        np.float32
    )
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "asked.npy", asked)
    save_file({"rows": rows, "bias": rows[0]}, tmp_path / "rows.safetensors")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 24)
    pq.write_table(
        pa.table({"id": list(range(600)), "vector": vectors}), tmp_path / "rows.parquet", row_group_size=100
    )
    pd.DataFrame(rows, columns=[str(i) for i in range(24)]).to_parquet(tmp_path / "wide.parquet")
    return tmp_path


def unit(file):
    rows = np.load(file).astype(float)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def naive(keys, queries, form, exclude, top):
    """Agreement and recall with all scores at once."""
    exact, low = queries @ keys.T, queries @ form @ keys.T
    if exclude is not None:
        exact[range(len(queries)), exclude] = low[range(len(queries)), exclude] = -np.inf
    first, second = (np.argsort(-scores, axis=1)[:, :top] for scores in (exact, low))
    shared = [len(set(one) & set(other)) / top for one, other in zip(first, second, strict=True)]
    return (first[:, 0] == second[:, 0]).mean(), np.mean(shared)


def test_own_rows_ask_about_the_others_as_in_a_naive_twin(files):
    scope = measure_retrieval(open_rows(files / "rows.npy"), top_k=5, head_rank=6, sample=600, block=128)
    keys = unit(files / "rows.npy")
    directions = np.linalg.eigh(np.cov(keys.T, bias=True))[1][:, ::-1]
    table = scope.table.set_index(["way", "rank"])
    for way, basis in ((PRINCIPAL, directions), (LEADING, np.eye(24))):
        for rank in (3, 12):
            form = basis[:, :rank] @ basis[:, :rank].T
            same, found = naive(keys, keys, form, range(600), 5)
            assert table.loc[way, rank]["agreement"] == pytest.approx(same, abs=0.005)
            assert table.loc[way, rank]["recall"] == pytest.approx(found, abs=0.005)
    assert (scope.table.loc[scope.table["rank"] == 24, ["agreement", "recall"]] > 0.995).all(axis=None)
    assert table.loc[RANDOM, 6]["agreement"] < table.loc[PRINCIPAL, 6]["agreement"]
    assert scope.summary["participation"] < 24
    assert scope.summary["queries"] == 600


def test_a_learned_form_follows_queries_of_another_law(files):
    keys, queries = open_rows(files / "rows.npy"), open_rows(files / "asked.npy")
    table = measure_retrieval(keys, queries, top_k=5, sample=40).table.set_index(["way", "rank"])
    assert table.loc[LEARNED, 12]["recall"] > table.loc[PRINCIPAL, 12]["recall"]


def test_the_learned_maps_are_the_best_form_of_theory(files):
    from rankscope.scope.retrieval import _maps

    known = moments(open_rows(files / "rows.npy"), np.arange(3))
    asked = np.load(files / "asked.npy").astype(float)
    second = asked.T @ asked
    of_query, of_key = _maps(np.eye(24), second, known.covariance, torch.Generator())[LEARNED]
    form = (of_query[:, :5] @ of_key[:, :5].T).numpy()
    assert form == pytest.approx(best_form(second, known.covariance, 5), abs=2e-3)


def test_moments_of_blocks_are_those_of_the_whole(files):
    keys = unit(files / "rows.npy")
    found = moments(open_rows(files / "rows.npy"), np.array([599, 4]), block=77)
    assert found.mean == pytest.approx(keys.mean(0), abs=1e-7)
    assert found.covariance == pytest.approx(np.cov(keys.T, bias=True), abs=1e-7)
    assert found.picked == pytest.approx(keys[[599, 4]], abs=1e-6)


def test_the_prediction_follows_keys_in_many_directions(tmp_path):
    """Rows of length 1 in many effective directions are nearly Gaussian; in few they are not, and nor are their extremes."""
    spectrum = power_spectrum(256, 0.3)
    rows = np.random.default_rng(1).standard_normal((800, 256)) * np.sqrt(spectrum)
    np.save(tmp_path / "many.npy", rows)
    table = measure_retrieval(open_rows(tmp_path / "many.npy"), top_k=40, sample=800).table
    noise = 0.5 / np.sqrt(800)
    assert (table["agreement"] - table["predicted_agreement"]).abs().mean() < noise
    assert (table["agreement"] - table["predicted_agreement"]).abs().max() < 4 * noise
    assert (table["recall"] - table["predicted_recall"]).abs().max() < 4 * noise


@pytest.mark.parametrize("name", ["rows.safetensors", "rows.parquet", "wide.parquet"])
def test_every_kind_of_file_has_the_same_rows(files, name):
    wanted = np.concatenate([part for _, part in open_rows(files / "rows.npy").blocks(90)])
    rows = open_rows(files / name)
    assert (rows.count, rows.dim) == (600, 24)
    assert np.array_equal(np.concatenate([part for _, part in rows.blocks(90)]), wanted)


@pytest.mark.parametrize("name", ["rows.npy", "rows.safetensors", "rows.parquet"])
def test_progress_hears_of_every_row_in_every_pass(files, name):
    told = []
    rows = heard(open_rows(files / name), told.append)
    measure_retrieval(rows, top_k=3, sample=20, block=128)
    assert sum(told) == PASSES * 600
    assert max(told) <= 128


def test_memory_does_not_grow_with_the_rows(tmp_path):
    """The peak of a process that reads 64 MB of rows in blocks of 256 KB, beyond what it has once 1 MB was read."""
    rows = np.random.default_rng(0).standard_normal((4000, 64)).astype(np.float32)
    np.save(tmp_path / "few.npy", rows)
    np.save(tmp_path / "many.npy", np.tile(rows, (64, 1)))
    save_file({"rows": np.tile(rows, (64, 1))}, tmp_path / "many.safetensors")
    program = """
import resource, sys
from rankscope.scope.rows import heard, open_rows
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
def read(file):
    return sum(len(part) for _, part in open_rows(file).blocks(1000))
for file in sys.argv[1:]:
    read(file)
    print(peak())
"""
    files = [tmp_path / name for name in ("few.npy", "many.npy", "many.safetensors")]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, files)], capture_output=True, text=True, check=True
    )
    first, second, third = map(int, done.stdout.split())
    assert second - first < 8_000
    assert third - second < 24_000  # what importing the format's library takes is in it


def test_ranks_reach_the_whole():
    assert tried_ranks(384, 64)[-1] == 384
    assert tried_ranks(2, 64) == [1, 2]


def test_the_command_prints_a_table_json_and_a_page(cli, files, tmp_path):
    code, out, err = cli("retrieval", files / "rows.npy", "--head-rank", 6, "--sample", 50)
    assert (code, err) == (0, "")
    assert "A head of rank 6 keeps this share of nearest neighbours: principal directions 0." in out
    code, out, err = cli("retrieval", files / "rows.npy", "--queries", files / "asked.npy", "--top-k", 3, "--json",
                         "--page", tmp_path / "page", "--csv", tmp_path / "t.csv")  # fmt: skip
    content = json.loads(out)
    assert code == 0
    assert "Page: " in err
    assert {row["way"] for row in content["ranks"]} == {"principal", "learned", "random", "leading"}
    assert len(pd.read_csv(tmp_path / "t.csv")) == len(content["ranks"])
    assert content["summary"]["queries"] == 40
    assert "What a score of low rank keeps" in (tmp_path / "page" / "index.html").read_text()


def test_what_cannot_be_read_is_named_with_the_remedy(refuses, files, tmp_path):
    np.save(tmp_path / "zero.npy", np.zeros((5, 4), np.float32))
    np.save(tmp_path / "whole.npy", np.ones((5, 4), int))
    np.save(tmp_path / "columns.npy", np.asfortranarray(np.ones((5, 4))))
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    save_file({"a": np.ones((3, 3)), "b": np.ones((3, 3))}, tmp_path / "two.safetensors")
    for name, saying in (
        ("zero.npy", "row 0 is zero or has values that are not finite"),
        ("whole.npy", "not a matrix of floats"),
        ("columns.npy", "stored column by column. Save it again by rows"),
        ("broken.npy", "not a plain .npy file"),
        ("broken.parquet", "not a Parquet file"),
        ("two.safetensors", "2 matrices (a, b), and one is read: name it"),
        ("rows.csv", "not a matrix that is read"),
        ("none.npy", "No such file"),
    ):
        refuses("retrieval", tmp_path / name, "--top-k", 2, saying=saying)
    refuses(
        "retrieval",
        files / "rows.npy",
        "--top-k",
        600,
        saying="has 599 keys per query. Take from 1 to 598. Option: --top-k",
    )
    refuses("retrieval", files / "rows.safetensors", "--tensor", "row", saying="Did you mean 'rows'?")


def test_queries_of_another_width_are_refused(files, tmp_path):
    np.save(tmp_path / "narrow.npy", np.ones((5, 4), np.float32))
    with pytest.raises(InputError, match=r"has 4 dimensions and .* 24. Embed both by one model"):
        measure_retrieval(open_rows(files / "rows.npy"), open_rows(tmp_path / "narrow.npy"))
