"""Slips that beginners make: the error comes where the slip is, names the value and says what to write instead."""

import argparse
import inspect
import io
import math
import subprocess
import sys
import types

import numpy as np
import pytest

import ampnative as torch
from ampnative import amp, nn
from ampnative.nn import functional as F

x = torch.ones(4, 6)


# ---- regions and scalers ----


@pytest.mark.parametrize("dtype, told", [
    ("bfloat16", r"not 'bfloat16' \(str\): write dtype=ampnative.bfloat16$"), ("torch.float16", "write dtype=ampnative.float16$"),
    ("half", "write dtype=ampnative.bfloat16 or dtype=ampnative.float16$"), (16, r"not 16 \(int\)"), (str, "not <class 'str'>"),
    (np.dtype("U1"), r"not dtype\('<U1'\)"), ("\ud800", "not '.ud800'"),
])  # fmt: skip
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.filterwarnings("ignore:In CPU autocast")
def test_regions_of_what_is_no_dtype_cannot_be_entered(dtype, told, enabled):
    region = torch.autocast("cpu", dtype=dtype, enabled=enabled)
    with pytest.raises(TypeError, match=rf"autocast\(\): argument 'dtype' must be an ampnative.dtype, .*{told}"), region:
        pass
    with pytest.raises(TypeError, match="must be an ampnative.dtype"):
        region(lambda: 1)()
    assert region.fast_dtype is dtype and not torch.is_autocast_enabled("cpu")
    region.fast_dtype = torch.bfloat16
    with region:
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    with pytest.raises(TypeError, match=r"set_autocast_dtype\(\): argument 'dtype' must be"):
        torch.set_autocast_dtype("cpu", dtype)


def test_the_warning_about_dtypes_names_them():
    with pytest.warns(UserWarning, match="target dtype is not supported.*\n.*Asked for: 'bfloat16'"):
        torch.autocast("cpu", dtype="bfloat16")
    with pytest.warns(UserWarning, match="target dtype is not supported.*\n.*Asked for: ampnative.float64"):
        torch.autocast("cpu", dtype=torch.float64)
    for given in (np.float16, np.dtype("float16"), torch.float16):
        with torch.autocast("cpu", dtype=given):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float16


def test_numbers_of_scalers_are_looked_at_when_they_are_made():
    wrong = {"init_scale": "65536", "growth_factor": "2", "backoff_factor": None, "growth_interval": "2"}
    for name, value in (*wrong.items(), ("init_scale", [1])):
        with pytest.raises(TypeError, match=rf"{name} must be a number, not .* \({type(value).__name__}\)"):
            amp.GradScaler("cpu", **{name: value})
        amp.GradScaler("cpu", enabled=False, **{name: value})
    for number in (2, 2.0, True, np.float32(2), np.int64(2), np.array(2.0), torch.tensor(2.0)):
        amp.GradScaler("cpu", init_scale=number, growth_interval=number)
    amp.GradScaler("cpu", growth_interval=lambda scale: 5)


# ---- losses ----


@pytest.mark.parametrize("name", [
    "BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "CTCLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
])  # fmt: skip
def test_classes_of_losses_called_like_functions(name):
    with pytest.raises((RuntimeError, TypeError), match=rf"^{name}\(\) got a Tensor.* nn.{name}\(\)\(input"):
        getattr(nn, name)(x, x)


def test_losses_of_three_tensors_called_like_functions():
    for loss in (nn.CosineEmbeddingLoss, nn.MarginRankingLoss, nn.TripletMarginLoss):
        with pytest.raises(RuntimeError, match=rf"{loss.__name__}\(\) got a Tensor of size \(4, 6\) for its option"):
            loss(x, x, x)
    with pytest.raises(RuntimeError, match=r"size_average must be a bool, not a Tensor of size \(4, 6\)"):
        F.mse_loss(x, x, x)
    assert nn.CrossEntropyLoss(torch.ones(3)).weight.numel() == 3 and nn.BCEWithLogitsLoss(pos_weight=torch.ones(3)) is not None
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.MSELoss(0).reduction == "sum"
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert nn.MSELoss(reduce=torch.tensor(False)).reduction == "none"


# ---- products ----


@pytest.mark.parametrize("a, b, told", [
    ((2, 4, 5, 8), (2, 4, 5, 8), "inner sizes must be equal: the last of the first is 8, the last but one of the second 5. Multiply by"),
    ((2, 4, 3), (2, 4, 3), "inner sizes must be equal: the last of the first is 3, the last but one of the second 4"),
    ((3, 4, 3), (2, 3, 4), r"batch sizes, ampnative.Size\(\[3\]\) and ampnative.Size\(\[2\]\), do not broadcast"),
    ((2, 4, 3), (5,), r"shape \(5,\).* inner sizes must be equal: the last of the first is 3, the last of the second 5"),
    ((5,), (2, 4, 3), r"shape \(5,\).* inner sizes must be equal: the last of the first is 5, the last but one of the second 4"),
    ((2, 4, 3), (5, 3), r"shape \(2, 4, 3\).* inner sizes must be equal"), ((0, 4, 3), (5, 3), "inner sizes must be equal"),
])  # fmt: skip
def test_batched_products_say_which_sizes_do_not_fit(a, b, told):
    with pytest.raises(RuntimeError, match=f"matmul: mat1 and mat2 shapes cannot be multiplied: .*{told}"):
        torch.ones(*a) @ torch.ones(*b)


@pytest.mark.parametrize("how", [{}, {"dropout_p": 0.5}, {"is_causal": True}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_attention_says_which_sizes_do_not_fit(how, dtype):
    def attend(*shapes, **more):
        F.scaled_dot_product_attention(*(torch.ones(*s, dtype=dtype) for s in shapes), **how, **more)

    shown = r"but query is ampnative.Size\(\[2, 3, 4, 8\]\), key "
    with pytest.raises(RuntimeError, match=f"scaled_dot_product_attention: query and key must have the same number of features.*{shown}"):
        attend((2, 3, 4, 8), (2, 3, 5, 6), (2, 3, 5, 6))
    with pytest.raises(RuntimeError, match=f"key and value must have the same length.*{shown}"):
        attend((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 6, 8))
    with pytest.raises(RuntimeError, match=rf"in front of \(length, features\) must broadcast, {shown}"):
        attend((2, 3, 4, 8), (2, 2, 5, 8), (2, 2, 5, 8))
    with pytest.raises(RuntimeError, match=rf"in front of \(heads, length, features\) must broadcast, {shown}"):
        attend((2, 3, 4, 8), (3, 3, 5, 8), (3, 3, 5, 8), enable_gqa=True)


# ---- sizes ----


@pytest.mark.parametrize("call, told", [
    (lambda: x.view(-1, 24 / 4), "view.*'size'.*element of type float at index 1: 6.0. Divide by //"),
    (lambda: x.view(8 / 2, 6), "view.*'size'.*element of type float at index 0: 4.0"),
    (lambda: x.view((8 / 2, 6)), "view.*'size'.*element of type float at index 0: 4.0"), (lambda: x.view(2.0), "'size'.* not float"),
    (lambda: x.view(dtype="a"), "'dtype' .* must be dtype, not str"), (lambda: x.view(torch.int32, 3), "at most 1 positional"),
    (lambda: x.reshape(-1, 4.0), "reshape.*'shape'.*float at index 1: 4.0"), (lambda: x.reshape([2, "a"]), "str at index 1: 'a'"),
    (lambda: nn.Linear(784 / 2, 10), "type float at index 1: 392.0"), (lambda: nn.Embedding(3.0, 4), "type float at index 0: 3.0"),
    (lambda: torch.zeros((2, 3 / 1)), "zeros.*type float at index 1"), (lambda: torch.zeros(2, 3 / 1), "zeros.*type float at index 1"),
    (lambda: torch.ones([2, None]), "type NoneType at index 1"), (lambda: x.sum((0.0, 1)), "sum.*'dim'.*float at index 0"),
    (lambda: torch.full(size=(2, 3.0), fill_value=1), "full.*'size'.*float at index 1"), (lambda: x.expand(2.0, 4, 6), "float at index 0"),
    (lambda: nn.Conv2d(3, 4, 3.0), "float at index 2: 3.0"), (lambda: nn.LayerNorm(6.0), "float at index 0"),
    (lambda: nn.LSTM(4.0, 5), "input_size should be of type int, got: float"), (lambda: nn.Unflatten(1, (2.0, 3)), "float at index 0: 2.0"),
    (lambda: x.repeat("a"), "repeat.*'repeats'.*str: 'a'"), (lambda: x.repeat(2.0, 1), "repeat.*float at index 0"),
    (lambda: x.tile(2.0), "tile.*'dims'.*float: 2.0"), (lambda: x.roll(1.0, 0), "roll.*'shifts'.*float: 1.0"),
    (lambda: x.split([2.0, 2]), "split.*float at index 0"), (lambda: x.split(2.0), "split.*got float: 2.0"),
    (lambda: nn.Conv2d(3, 4), r"^Conv2d.__init__\(\) missing 1 required positional argument: 'kernel_size'"),
    (lambda: nn.ConvTranspose1d(3, 4), r"^ConvTranspose1d.__init__\(\) missing"),
    (lambda: nn.Linear(2, 2).to(dtype="half"), "dtype='half' is a str, not a dtype"),
    (lambda: nn.Linear(2, 2).to("cpu", "half"), "dtype='half' is a str"),
    (lambda: torch.from_numpy(np.array(["a"])), r"float64 complex64 complex128$"),
])  # fmt: skip
def test_the_element_that_does_not_fit_is_named(call, told):
    with pytest.raises(TypeError, match=told):
        call()


def test_what_counts_as_a_size():
    for two in (2, np.int64(2), torch.tensor(2)):
        assert x.repeat(two, 1).shape == (8, 6) and x.tile((two,)).shape == (4, 12) and x.roll(two, 0).shape == x.shape
        assert x.view(two, 12).shape == (2, 12) and [len(p) for p in x.split([two, two])] == [2, 2]
    assert x.repeat(np.array([2, 1])).shape == (8, 6) and nn.Conv2d(1, 1, np.int64(3)).weight.shape == (1, 1, 3, 3)
    layer = nn.Linear(2, 2)
    assert layer.to(float).weight.dtype == torch.float64 and layer.type("torch.HalfTensor").weight.dtype == torch.float16
    with pytest.raises(RuntimeError, match=r"^permute\(\): number of dimensions"):
        x.permute(0)


# ---- lists of tensors ----


@pytest.mark.parametrize("call, element", [
    (lambda: torch.cat([x, 1]), "element 1 in argument 0, but got int"), (lambda: torch.cat((None, x)), "element 0 .* NoneType"),
    (lambda: torch.stack([torch.ones(2), [1.0, 2.0]]), "element 1 in argument 0, but got list"),
    (lambda: torch.einsum("ij,jk->ik", x, 1), "element 1 in argument 1, but got int"),
    (lambda: torch.vstack([x, 1]), "element 1 in argument 0, but got int"),
    (lambda: torch.meshgrid(torch.ones(2), 1), "element 1 .* int"), (lambda: torch.block_diag(x, [1]), "element 1 .* list"),
    (lambda: nn.utils.rnn.pad_sequence([torch.ones(2), [1.0]]), "element 1 .* list"),
    (lambda: nn.utils.rnn.pad_sequence([[1.0], torch.ones(2)]), "element 0 .* list"),
])  # fmt: skip
def test_the_element_that_is_no_tensor_is_named(call, element):
    with pytest.raises(TypeError, match=f"expected Tensor as {element}"):
        call()


# ---- indices ----


@pytest.mark.parametrize("index, dim, told", [
    ([[5, 0]], 0, "index 5 is out of bounds for dimension 0 with size 2$"), ([[0], [7]], 1, "index 7 .* dimension 1 with size 2$"),
    ([[0, -1]], 0, "index -1 is out of bounds for dimension 0 with size 2: these indices count from 0"),
])  # fmt: skip
def test_gathers_and_scatters_name_the_index(index, dim, told):
    index, table = torch.tensor(index), torch.zeros(2, 2)
    wide = torch.zeros(index.size(0), 2 * index.size(1), dtype=torch.int64)
    wide[:, ::2] = index
    for place in (index, index.to(torch.int32), wide[:, ::2]):
        src = torch.ones(*place.shape)
        for op, *more in (
            (table.gather,), (table.scatter, 1.0), (table.scatter_, 1.0), (table.scatter_, src), (table.scatter_add_, src),
            (table.scatter_reduce, src, "amax"),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match=told):
                op(dim, place, *more)
    assert not table.any()


# ---- recurrent layers, files, the rest ----


def test_lstm_takes_a_pair():
    data, h = torch.ones(3, 2, 4), torch.zeros(1, 2, 5)
    layer = nn.LSTM(4, 5)
    with pytest.raises(IndexError, match=r"LSTM takes the pair \(h, c\) .* one Tensor of size \(1, 2, 5\)"):
        layer(data, h)
    with pytest.raises(RuntimeError, match=r"LSTM takes the pair \(h, c\)"):
        nn.LSTM(4, 5, num_layers=2)(data, torch.zeros(2, 2, 5))
    with pytest.raises(TypeError, match=r"LSTMCell takes the pair \(h, c\)"):
        nn.LSTMCell(4, 5)(torch.ones(2, 4), torch.ones(2, 5))
    assert layer(data, torch.stack([h, h]))[0].equal(layer(data, (h, h))[0])


def test_parameters_are_saved_as_such():
    def there_and_back(value, **how):
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        return torch.load(file, **how)

    p, fixed = nn.Parameter(torch.arange(3.0)), nn.Parameter(torch.arange(3), requires_grad=False)
    p16 = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    back = there_and_back({"p": p, "again": [p, fixed, p16], "same": p.detach()}, map_location=lambda tensor, location: tensor)
    assert type(back["p"]) is nn.Parameter and back["p"] is back["again"][0] and back["p"].requires_grad and back["p"].is_leaf
    assert type(back["again"][1]) is nn.Parameter and not back["again"][1].requires_grad
    assert type(back["again"][2]) is nn.Parameter and back["again"][2].dtype == torch.bfloat16
    assert type(back["same"]) is torch.Tensor and back["same"].data_ptr() == back["p"].data_ptr()
    assert all(type(t) is torch.Tensor for t in there_and_back(nn.Linear(1, 1).state_dict()).values())


def test_what_cannot_be_saved_says_how_it_can():
    for value in (argparse.Namespace(a=1), types.SimpleNamespace(a=1)):
        with pytest.raises(TypeError, match=r"cannot save \['args'\] of type .*Namespace: convert it with vars\(...\)"):
            torch.save({"args": value}, io.BytesIO())
    for value in (math, object(), len):
        with pytest.raises(TypeError, match="Tensors, arrays, numbers"):
            torch.save(value, io.BytesIO())


def test_signatures_of_functions_with_sizes():
    assert list(inspect.signature(torch.randn).parameters)[:2] == ["size", "generator"]
    assert str(inspect.signature(torch.Tensor.permute)) == "(self, /, *dims)"


def test_a_rival_that_is_not_installed():
    code = "import sys; sys.modules['torch'] = None; from ampnative.bench.run import main; main(['--rival', 'nobodys_module'])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "-m pip install nobodys_module" in done.stderr, done.stderr


# ---- values of the wrong kind ----


LOSSES = [
    F.mse_loss, F.l1_loss, F.huber_loss, F.smooth_l1_loss, F.kl_div, F.cross_entropy, F.binary_cross_entropy, F.soft_margin_loss,
    F.binary_cross_entropy_with_logits, F.poisson_nll_loss, F.hinge_embedding_loss,
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("reduction", [None, 5, True])
def test_reductions_that_there_are_not(loss, reduction):
    with pytest.raises(ValueError, match=f"{reduction} is not a valid value for reduction: use 'none', 'mean' or 'sum'"):
        loss(torch.ones(3, 3), torch.ones(3, 3), reduction=reduction)


@pytest.mark.parametrize("number", [5, 2.5, True, 1j])
def test_numbers_are_no_matrices(number):
    for product in (lambda: x @ number, lambda: number @ x):
        with pytest.raises(TypeError, match="unsupported operand"):
            product()


@pytest.mark.parametrize("place", [torch.tensor([1]), None, 1.5, "0", (0.5,)])
def test_movedim_names_what_is_no_dimension(place):
    with pytest.raises(TypeError, match=r"movedim\(\): argument 'destination' must be an int or a tuple of ints, not"):
        x.movedim(0, place)
    with pytest.raises(TypeError, match=r"movedim\(\): argument 'source' must be"):
        x.movedim(place, 0)


def test_movedim_moves_each_dimension_once():
    for source, destination in (((0, 1), (0, 0)), ((0, -2), (0, 1))):
        with pytest.raises(RuntimeError, match="repeated dim"):
            x.movedim(source, destination)
    assert x.movedim(0, torch.tensor(1)).shape == x.movedim((torch.tensor(0),), (1,)).shape == (6, 4)


def test_states_of_lstms_are_pairs():
    layer, h = nn.LSTM(2, 2), torch.ones(1, 1, 2)
    for states, kind in (((h,), IndexError), ([], IndexError), ((h, h, h), RuntimeError)):
        with pytest.raises(kind, match=rf"LSTM takes the pair \(h, c\) .* got {len(states)} of them"):
            layer(h, states)


@pytest.mark.parametrize("bins", [None, 2.5, True, "3", torch.tensor([2]), torch.tensor(2.0)])
def test_bins_are_counted(bins):
    with pytest.raises(TypeError):
        torch.histc(torch.ones(3), bins)
    assert torch.histc(torch.ones(3), torch.tensor(2)).tolist() == torch.histc(torch.ones(3), np.int64(2)).tolist() == [0, 3]


@pytest.mark.parametrize("exponent", [63, 70, 200, 2000])
def test_scales_beyond_64_bits_are_floats(exponent):
    scaler = amp.GradScaler("cpu", init_scale=2**exponent)
    with pytest.raises(OverflowError, match=rf"write a float, such as 2.0\*\*{exponent}"):
        scaler.scale(torch.ones(1))
    assert scaler._scale is None
