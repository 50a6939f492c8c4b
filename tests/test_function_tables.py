"""Functions of many 16-bit numbers are looked up in tables: the same bits as the kernels give, which serve fewer numbers."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import ampnative as torch

F = torch.nn.functional
IN_TORCH = [
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "i0", "sinc", "sigmoid"),
]
FUNCTIONS = {
    **{name: getattr(torch, name) for name in IN_TORCH},
    **{name: getattr(torch.special, name) for name in ("i1", "i0e", "i1e", "entr", "ndtri")},
    **{name: getattr(F, name) for name in ("silu", "mish", "selu", "logsigmoid", "gelu", "tanhshrink")},
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
DTYPES = [torch.float16, torch.bfloat16]


def bits(x):
    """NaN as one: its bits are nobody's promise."""
    return torch.where(x.isnan(), 0x7FFF, x.contiguous().view(torch.int16)).numpy()


def all_numbers(dtype, seed=0):
    """Each of the 65536 once, in any order."""
    order = np.random.default_rng(seed).permutation(65536).astype("uint16").view("int16")
    return torch.from_numpy(order).view(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_table_gives_what_the_kernel_gives(name, dtype):
    x = all_numbers(dtype)
    got = bits(FUNCTIONS[name](x))
    want = np.concatenate([bits(FUNCTIONS[name](x[i : i + 1000])) for i in range(0, 65536, 1000)])
    assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_layout(dtype):
    x = all_numbers(dtype)
    want = bits(torch.tanh(x))
    assert np.array_equal(bits(torch.tanh(x.view(256, 256).t())), want.reshape(256, 256).T)
    pairs = torch.stack([x, torch.zeros_like(x)], dim=1)
    assert np.array_equal(bits(torch.tanh(pairs[:, 0])), want)
    assert np.array_equal(bits(torch.tanh(x[:, None].expand(65536, 3))), want[:, None].repeat(3, 1))
    assert np.array_equal(bits(torch.tanh(x[5:6].expand(40000))), want[5:6].repeat(40000))
    out = torch.empty(65536, 2, dtype=dtype)
    torch.tanh(x, out=out[:, 1])
    assert np.array_equal(bits(out[:, 1]), want)
    assert np.array_equal(bits(x.clone().tanh_()), want)
    assert np.array_equal(bits(torch.tanh(x[1:-1])), want[1:-1])


def test_formats_are_kept_apart():
    x = torch.linspace(-3, 3, 40000).to(torch.bfloat16)
    out = torch.empty(40000)
    torch.exp(x, out=out)
    assert torch.equal(out, torch.exp(x).float())
    assert torch.equal(torch.exp(x.half()), torch.exp(x.float()).half())
    assert torch.equal(torch.isnan(x), torch.zeros(40000, dtype=torch.bool))


def test_threads_that_make_a_table_at_once():
    script = """
        import threading
        import ampnative as torch
        x = torch.linspace(0.1, 20, 1 << 16).to(torch.bfloat16)
        start, results = threading.Barrier(6), []
        def work():
            start.wait()
            results.append(torch.lgamma(x))
        threads = [threading.Thread(target=work) for _ in range(6)]
        [t.start() for t in threads], [t.join() for t in threads]
        want = torch.cat([torch.lgamma(part) for part in x.split(1000)])
        assert len(results) == 6 and all(torch.equal(r, want) for r in results)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
