"""Autocast's op lists as tables: amp.ops, amp.op_policy, `ampnative policies`, and ops that are not there yet."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from golden_tools import OWN_FOLDER

import ampnative as torch
from ampnative import _C, amp, cli
from ampnative._absent import AbsentOpError

# Contract 3.11 and 3.12: how many entries each list has.
COUNTS = {
    "cuda": {"lower": 35, "fp32": 60, "set_opt": 11, "append": 2, "promote": 11, "banned": 1},
    "cpu": {"lower": 24, "fp32": 99, "promote": 3},
}
# Contract 3.11, 3.12: the short lists in full, and samples of the long ones.
LISTED = {
    "cuda": {
        "lower": "conv2d conv_transpose3d.input addmm matmul einsum linalg_vecdot linear lstm_cell prelu scaled_dot_product_attention",
        "fp32": "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor "
        "pow.Scalar softplus layer_norm rms_norm cdist logsumexp linalg_matrix_sqrth mse_loss nll_loss2d upsample_bicubic2d "
        "binary_cross_entropy_with_logits",
        "set_opt": "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm "
        "linalg_matrix_norm.str_ord sum sum.dim_IntList",
        "append": "norm.Scalar norm.ScalarOpt_dim",
        "promote": "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add",
        "banned": "binary_cross_entropy",
    },
    "cpu": {
        "lower": "bmm mm linalg_vecdot baddbmm addmm _addmm_activation addbmm linear matmul mkldnn_rnn_layer prelu conv1d conv1d.padding",
        "fp32": "avg_pool3d binary_cross_entropy cross_entropy_loss ctc_loss.IntList grid_sampler_3d polar prod prod.dim_int trace "
        "quantile.scalar stft.center fft_ihfft svd linalg_matrix_rank.tol_tensor linalg_lstsq linalg_matrix_sqrth",
        "promote": "stack cat index_copy",
    },
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_lists_are_pytorchs(device):
    with open(Path(OWN_FOLDER) / f"op_policy_{device}.json") as file:
        registered = set(json.load(file)["registered"])
    listed = amp.ops(device)
    assert set(listed) == registered - {"_cudnn_rnn"}  # it has its own handling, outside the policies
    assert Counter(listed.values()) == COUNTS[device]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_entry_has_the_contracts_policy(device):
    for policy, names in LISTED[device].items():
        for name in names.split():
            assert amp.op_policy(name, device) == amp.ops(device)[name] == policy, name
    short = [p for p, n in COUNTS[device].items() if n <= 11]
    for policy in short:
        assert {n for n, p in amp.ops(device).items() if p == policy} == set(LISTED[device][policy].split())


def test_absent_ops_are_no_rows():
    rows = {r["name"] for r in _C.op_rows()}
    absent = [e["entry"] for e in _C._policy_entries() if e["absent"]]
    assert not rows & {e.partition(".")[0] for e in absent}
    entries = [e["entry"] for e in _C._policy_entries()]
    assert len(entries) == len(set(entries))


@pytest.mark.parametrize(
    ("name", "cuda", "cpu"),
    [
        ("matmul", "lower", "lower"),
        ("pow", "fp32", "none"),
        ("softmax", "set_opt", "none"),
        ("torch.nn.functional.layer_norm", "fp32", "none"),
        ("linalg.svd", "none", "fp32"),
        ("linalg.norm", "none", "none"),
        ("fft.fftfreq", "none", "none"),
        ("fft.fft", "none", "fp32"),
        ("conv_transpose2d", "lower", "lower"),
        ("cat", "none", "promote"),
        ("square", "fp32", "none"),  # through pow
        ("cross_entropy", "none", "fp32"),
        ("batch_norm", "none", "none"),
        ("add", "none", "none"),
        ("add_", "none", "none"),
        ("mm_", None, None),
        ("chunk", "none", "none"),
        ("leaky_relu", "none", "none"),
        ("__matmul__", "lower", "lower"),
        ("grid_sample", "promote", "fp32"),
        (torch.mm, "lower", "lower"),
        (torch.nn.functional.mse_loss, "fp32", "fp32"),
    ],
)
def test_op_policy(name, cuda, cpu):
    for device, policy in (("cuda", cuda), ("cpu", cpu), ("cuda:0", cuda)):
        if policy is None:
            with pytest.raises(ValueError, match="no op is called"):
                amp.op_policy(name, device)
        else:
            assert amp.op_policy(name, device) == policy


def test_wrong_questions():
    with pytest.raises(ValueError, match="do you mean 'matmul'"):
        amp.op_policy("matmull", "cpu")
    with pytest.raises(ValueError, match="'cpu' and 'cuda'"):
        amp.ops("mps")
    with pytest.raises(TypeError):
        amp.ops(None)
    with pytest.raises(TypeError, match="by its name or its function"):
        amp.op_policy(3, "cpu")
    with pytest.raises(TypeError, match="does not take 3 tensors"):
        amp.result_dtype("mm", torch.float32, torch.float32, torch.float32)
    with pytest.raises(TypeError):
        amp.result_dtype("mm", "float32", "float32")
    with pytest.raises(TypeError, match="without a tensor"):
        amp.result_dtype("zeros")
    with pytest.raises(NotImplementedError, match="cudnn_convolution"):
        amp.result_dtype("cudnn_convolution", torch.float32, torch.float32)
    with pytest.raises(ValueError):
        amp.result_dtype("nonsense", torch.float32)
    with pytest.raises(ValueError):
        amp.result_dtype("mm", torch.float32, torch.float32, device_type="meta")


def test_result_dtype_knows_the_region():
    f32, f16, f64 = torch.float32, torch.float16, torch.float64
    assert amp.result_dtype("matmul", f32, f32) is f32
    with torch.cuda.emulate(), amp.autocast("cuda"):
        assert amp.result_dtype("matmul", f32, f32) is f16  # the device whose autocast is on
        assert amp.result_dtype("matmul", f32, f32, device_type="cpu") is f32
        assert amp.result_dtype(torch.mm, torch.ones(2, 2), f32) is f32  # a tensor on the CPU
        assert amp.result_dtype("softmax", f16) is f32
        assert amp.result_dtype("add", f16, f32) is f32
        assert amp.result_dtype("mm", f64, f64) is f64
        assert amp.result_dtype("exp_", f16) is f16 and amp.result_dtype("exp", f16) is f32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            amp.result_dtype("binary_cross_entropy", f32, f32)
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
            amp.result_dtype("dot", torch.bfloat16, torch.bfloat16)
        with pytest.raises(RuntimeError):
            amp.result_dtype("mm", f32, f64)
    with amp.autocast("cpu"):
        assert amp.result_dtype("cat", f32, torch.bfloat16) is f32
        assert amp.result_dtype("cat", *[torch.bfloat16] * 5) is torch.bfloat16
        assert amp.result_dtype("max", f32, torch.bfloat16) is f32
    with pytest.raises(RuntimeError, match="can't be cast"):
        amp.result_dtype("add_", torch.int64, f32)


# ---- ops that are not there ----


@pytest.mark.parametrize(
    ("owner", "name", "policies"),
    [
        (torch, "cudnn_convolution", ("lower", "none")),
        (torch, "fake_quantize_per_tensor_affine", ("none", "fp32")),
    ],
)
def test_an_absent_op_says_so(owner, name, policies):
    with pytest.raises(NotImplementedError) as caught:
        getattr(owner, name)(torch.ones(2))
    assert isinstance(caught.value, AttributeError) and isinstance(caught.value, AbsentOpError)
    text = str(caught.value)
    assert name in text and "does not have" in text
    assert re.findall(r"'(\w+)' on (\w+)", text) == [(policies[0], "cuda"), (policies[1], "cpu")]
    assert not hasattr(owner, name) and name not in dir(owner)


def test_names_of_nobody_are_plain_attribute_errors():
    for owner in (torch, torch.nn.functional, torch.linalg, torch.fft):
        with pytest.raises(AttributeError) as caught:
            _ = owner.no_such_thing
        assert not isinstance(caught.value, NotImplementedError)


def test_importing_an_absent_op_is_an_import_error():
    with pytest.raises(ImportError):
        from ampnative.nn.functional import cudnn_convolution  # noqa: F401


# ---- the command ----


def printed(capsys, *args):
    assert cli.main(["policies", *args]) == 0
    return capsys.readouterr().out


def test_policies_prints_the_table(capsys):
    lines = printed(capsys, "--device", "cuda").splitlines()
    assert lines[0].split() == ["op", "cuda", "in", "ampnative"] and lines[121].startswith("120 ops, ")
    assert "cudnn_convolution: It is cuDNN's own entry: use conv2d or convolution." in lines
    assert lines[-6].startswith("lower    floating arguments") and lines[-1].startswith("banned")
    assert ["matmul", "lower", "yes"] in [line.split() for line in lines]
    assert ["cudnn_convolution", "lower", "no"] in [line.split() for line in lines]
    both = [line.split() for line in printed(capsys).splitlines()]
    assert both[0][:3] == ["op", "cuda", "cpu"] and ["binary_cross_entropy", "banned", "fp32", "yes"] in both


def test_policies_as_json(capsys):
    rows = json.loads(printed(capsys, "--json", "--device", "cpu"))
    assert {r["op"]: r["cpu"] for r in rows} == amp.ops("cpu")
    rows = json.loads(printed(capsys, "--json", "--policy", "promote"))
    assert {"op": "cat", "cuda": "none", "cpu": "promote", "exists": True} in rows and len(rows) == 14
    following = json.loads(printed(capsys, "--json", "--policy", "none"))
    assert {"op": "add", "cuda": "none", "cpu": "none", "exists": True} in following
    assert all(r["cuda"] == r["cpu"] == "none" for r in following)
    for row in following:
        assert amp.op_policy(row["op"], "cpu") == "none", row


def test_policies_refuses_nonsense(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["policies", "--device", "tpu"])
    assert caught.value.code == 2
