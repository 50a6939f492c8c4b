"""Checkpoints that PyTorch 2.15 wrote: they load unchanged and give PyTorch's outputs, in fp32 and under bf16 autocast."""

import json

import numpy as np
import pytest
from golden_models import record

import ampnative as torch
from ampnative.serialization import load_safetensors

FP32, BF16 = 2e-6, 3 * 2.0**-8  # of the largest output; bf16: each of a few roundings is half of 2^-8


def close(got, want, bound):
    got, want = (t.detach().float().numpy().astype(np.float64) for t in (got, want))
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= bound * max(1.0, np.abs(want).max())


def loaded(make, name):
    state = load_safetensors(record.HERE / f"{name}.safetensors")
    torch.manual_seed(99)
    model = make(torch.nn)
    own = model.state_dict()
    assert sorted(own) == sorted(state)  # safetensors orders by size
    assert all(own[k].shape == state[k].shape and own[k].dtype == state[k].dtype for k in own)
    result = model.load_state_dict(state)
    assert not result.missing_keys and not result.unexpected_keys
    return model, load_safetensors(record.HERE / f"{name}_outputs.safetensors")


def test_cnn():
    model, want = loaded(record.make_cnn, "cnn")
    x = want["x"]
    with torch.no_grad():
        model.eval()
        close(model(x), want["eval"], FP32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        assert out.dtype == want["eval_bf16"].dtype == torch.bfloat16
        close(out, want["eval_bf16"], BF16)
        model.train()
        close(model(x), want["train"], FP32)
    assert int(model[1].num_batches_tracked) == 4
    close(model[1].running_mean, want["running_mean"], FP32)
    close(model[1].running_var, want["running_var"], FP32)


def test_transformer_layer_and_lstm():
    model, want = loaded(record.make_sequence, "sequence")
    x, padding = want["x"], want["padding"]

    def check(prefix, bound):
        for got, part in zip(record.run_sequence(model, x, padding), ("", "_h", "_c"), strict=True):
            assert got.dtype == want[prefix + part].dtype
            close(got, want[prefix + part], bound)

    model.eval()
    check("eval", FP32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check("eval_bf16", BF16)
    model.train()
    torch.manual_seed(3)
    check("train", FP32)


@pytest.mark.parametrize("name", ["cnn", "sequence"])
def test_the_emulated_device_gives_them_too(name):
    """fp16 autocast on CUDA against PyTorch's fp32 outputs."""
    with torch.cuda.emulate():
        model, want = loaded(record.make_cnn if name == "cnn" else record.make_sequence, name)
        model = model.cuda().eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
            x = want["x"].cuda()
            out = model(x) if name == "cnn" else record.run_sequence(model, x, want["padding"].cuda())[0]
        assert out.is_cuda and out.dtype == (torch.float16 if name == "cnn" else torch.float32)
        close(out.cpu(), want["eval"], 8 * 2.0**-11)


def cases(file):
    with open(record.HERE / file) as f:
        return [pytest.param(c, id=f"{c['case'][0]}-{i}") for i, c in enumerate(json.load(f))]


@pytest.mark.parametrize("recorded", cases("recurrent.json"))
def test_recurrent_modules_start_and_run_as_pytorchs(recorded):
    got = record.run_recurrent(torch, *recorded["case"])
    assert got["repr"] == recorded["repr"]
    assert [n for n, _ in got["weights"]] == [n for n, _ in recorded["weights"]]
    assert [v for _, v in got["weights"]] == pytest.approx([v for _, v in recorded["weights"]], abs=1e-6)
    assert got["out"] == pytest.approx(recorded["out"], abs=1e-6)


@pytest.mark.parametrize("recorded", cases("attention.json"))
def test_attention_modules_start_and_run_as_pytorchs(recorded):
    got = record.run_attention(torch, *recorded["case"])
    assert got["repr"] == recorded["repr"]
    assert [w[:2] for w in got["weights"]] == [w[:2] for w in recorded["weights"]]
    assert [w[2] for w in got["weights"]] == pytest.approx([w[2] for w in recorded["weights"]], abs=1e-5)
    assert got["out"] == pytest.approx(recorded["out"], abs=5e-6)
    assert got["grad"] == pytest.approx(recorded["grad"], abs=1e-5)
