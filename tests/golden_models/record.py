"""Writes the checkpoints and outputs beside this file. To be run with PyTorch and safetensors installed:

    python tests/golden_models/record.py

cnn.safetensors, sequence.safetensors hold state_dicts as PyTorch saves them; *_outputs.safetensors hold inputs and what PyTorch
returned for them. recurrent.json holds sums of initial weights, outputs and reprs of recurrent modules.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent


def make_cnn(nn):
    """Digits of 8 x 8 pixels: convolutions (one with groups), batch norm with and without statistics, pooling, linear."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(8, affine=False), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def make_sequence(nn):
    """A transformer encoder layer, then a bidirectional LSTM."""
    return nn.ModuleDict({
        "encoder": nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, activation="gelu"),
        "lstm": nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True),
        "norm": nn.LayerNorm(16),
    })  # fmt: skip


def run_sequence(model, x, padding):
    y = model["encoder"](x, src_key_padding_mask=padding)
    out, (h, c) = model["lstm"](y)
    return model["norm"](out), h, c


def record_models(torch):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    cnn, x = make_cnn(torch.nn), torch.rand(4, 1, 8, 8)
    cnn.train()
    for _ in range(3):  # running statistics that are not the initial ones
        cnn(torch.rand(8, 1, 8, 8))
    save_file(cnn.state_dict(), HERE / "cnn.safetensors")
    out = {"x": x}
    with torch.no_grad():
        cnn.eval()
        out["eval"] = cnn(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out["eval_bf16"] = cnn(x)
        cnn.train()
        out["train"] = cnn(x)
    out["running_mean"], out["running_var"] = cnn[1].running_mean, cnn[1].running_var
    save_file(out, HERE / "cnn_outputs.safetensors")

    model, x = make_sequence(torch.nn), torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    save_file(model.state_dict(), HERE / "sequence.safetensors")
    out = {"x": x, "padding": padding}
    model.eval()
    out["eval"], out["eval_h"], out["eval_c"] = run_sequence(model, x, padding)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out["eval_bf16"], out["eval_bf16_h"], out["eval_bf16_c"] = run_sequence(model, x, padding)
    model.train()
    torch.manual_seed(3)  # dropout draws the same numbers
    out["train"], out["train_h"], out["train_c"] = run_sequence(model, x, padding)
    save_file({k: v.detach().contiguous() for k, v in out.items()}, HERE / "sequence_outputs.safetensors")


RECURRENT = [
    ("LSTM", [2, 3, 2], {"dropout": 0.5}), ("GRU", [2, 3], {"bidirectional": True, "bias": False}),
    ("RNN", [2, 3], {"nonlinearity": "relu", "num_layers": 2}), ("LSTM", [2, 3], {"proj_size": 2}),
    ("LSTMCell", [2, 3], {}), ("GRUCell", [2, 3], {"bias": False}), ("RNNCell", [2, 3], {"nonlinearity": "relu"}),
]  # fmt: skip


def run_recurrent(torch, name, args, options):
    """Weights after seed 0; output for fixed input, with dropout drawn after seed 1."""
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(*args, **options)
    torch.manual_seed(1)
    x = torch.arange(4.0).reshape(2, 2) / 2 - 1 if name.endswith("Cell") else torch.arange(12.0).reshape(3, 2, 2) / 6 - 1
    out = module(x)
    while isinstance(out, tuple):
        out = out[0]
    return {
        "repr": repr(module),
        "weights": [[n, round(p.double().sum().item(), 7)] for n, p in module.named_parameters()],
        "out": [round(v, 7) for v in out.detach().flatten().tolist()],
    }


ATTENTION = [
    {}, {"bias": False}, {"kdim": 6, "vdim": 10}, {"add_bias_kv": True, "add_zero_attn": True}, {"dropout": 0.3},
]  # fmt: skip
FORMS = [
    ("MultiheadAttention", [8, 2], options) for options in ATTENTION
] + [
    ("TransformerEncoderLayer", [8, 2, 12], {}), ("TransformerEncoderLayer", [8, 2, 12], {"norm_first": True, "activation": "gelu"}),
    ("TransformerDecoderLayer", [8, 2, 12], {"batch_first": True, "bias": False}), ("Transformer", [8, 2, 1, 2, 12], {}),
]  # fmt: skip


def run_attention(torch, name, args, options):
    """Weights after seed 0; training output for fixed inputs, with dropout drawn after seed 1; and a part of its gradient."""
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(*args, **options)
    torch.manual_seed(1)
    key, value = options.get("kdim", 8), options.get("vdim", 8)
    q, k, v = (torch.sin(torch.arange(float(6 * n)) * (i + 1)).reshape(3, 2, n) for i, n in enumerate((8, key, value)))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(2 if options.get("batch_first") else 3)
    q.requires_grad_()
    if name == "MultiheadAttention":
        out, weights = module(q, k, v, attn_mask=mask)
        out = torch.cat([out.flatten(), weights.flatten()])
    elif name == "TransformerEncoderLayer":
        out = module(q, src_mask=mask)
    elif name == "TransformerDecoderLayer":
        out = module(q, k, tgt_mask=mask, tgt_is_causal=True)
    else:
        out = module(q, k, src_mask=mask)
    (out * torch.cos(torch.arange(float(out.numel()))).reshape(out.shape)).sum().backward()
    return {
        "repr": repr(module),
        "weights": [[n, list(p.shape), round(p.double().sum().item(), 6)] for n, p in module.named_parameters()],
        "out": [round(x, 6) for x in out.detach().flatten().tolist()],
        "grad": [round(x, 6) for x in q.grad.flatten().tolist()[:16]],
    }


def main():
    import torch

    torch.set_num_threads(1)
    record_models(torch)
    for file, cases, run in (("recurrent", RECURRENT, run_recurrent), ("attention", FORMS, run_attention)):
        lines = [json.dumps({"case": case, **run(torch, *case)}) for case in cases]
        (HERE / f"{file}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    sys.exit(main())
