"""Where there is a GPU: an adapter made on it is the CPU's, loads, and is verified."""

import json

import pytest
import torch
from safetensors.torch import load_file

from rankscope.core.streams import stream
from tests.command_line import call
from tests.zoo import build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(params=["llama", "gpt2"])
def pair(request, tmp_path):
    """Folders of a base and of the same moved by two directions, exactly so before rounding."""
    model = build(request.param)
    model.save_pretrained(tmp_path / "base")
    generator = stream(0, "moved")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "embed" not in name and "wte" not in name and "wpe" not in name:
                left, right = (
                    torch.randn(side, 2, generator=generator, dtype=torch.float64) for side in weight.shape
                )
                weight.copy_(weight.double() + 0.05 * left @ right.T)
    model.save_pretrained(tmp_path / "tuned")
    return tmp_path


def test_an_adapter_made_on_a_gpu_is_verified_and_is_the_cpus(monkeypatch, capsys, pair):
    monkeypatch.setenv("XDG_CACHE_HOME", str(pair / "cache"))
    products, found = {}, {}
    for device in ("cpu", "cuda"):
        out = pair / device
        models = ("--base-model", pair / "base", "--model", pair / "tuned")
        code, printed, _ = call(
            monkeypatch,
            capsys,
            "updates",
            *models,
            "--max-rank",
            2,
            "--out",
            out,
            "--device",
            device,
            "--json",
        )
        assert code == 0
        found[device] = json.loads(printed)["adapter"]
        factors = load_file(out / "adapter_model.safetensors")
        products[device] = {
            name: factors[name.replace("lora_A", "lora_B")] @ value
            for name, value in factors.items()
            if "lora_A" in name
        }
    assert found["cuda"]["logits_error"] < 1e-4 < found["cuda"]["base_logits_error"]
    assert products["cuda"].keys() == products["cpu"].keys()
    for name, product in products["cpu"].items():
        torch.testing.assert_close(products["cuda"][name], product, rtol=1e-3, atol=1e-5)
