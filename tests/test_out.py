"""out=: every function that has it, with PyTorch's answer to each pair of dtypes (out_calls.py, out_dtypes.json).

With AMPNATIVE_TEST_MODULE=torch PyTorch must agree with its own recording.
"""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import out_calls as c
import pytest
from golden_tools import IS_PYTORCH, torch

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")

RECORDED = json.loads(Path(__file__).with_name("out_dtypes.json").read_text())
ALL = {**c.CALLS, **c.FACTORIES}
# (call, input) -> dtypes of out on which this library and PyTorch differ.
DIFFERENT = {
    ("abs", "complex64"): "complex128",  # PyTorch takes out of all dtypes but this one
    ("absolute", "complex64"): "complex128",
    ("lerp:x,x,x", "float32"): "float16 bfloat16 float64 complex64 complex128",  # as PyTorch's lerp by a number
    ("lerp:x,x,x", "bfloat16"): "float16 float32 float64 complex64 complex128",
}
# PyTorch sums floats into integers by dtype=, but not by out=.
DIFFERENT |= {("nansum:x,0", d): "bool uint8 int32 int64" for d in ("float32", "bfloat16")}
DIFFERENT |= {
    ("mean:x,1", "complex64"): "float16 bfloat16 float32 float64",  # PyTorch drops imaginary parts here alone
    ("fft.ifft", "complex64"): "complex128",  # PyTorch takes it for complex inputs alone, and of ifft alone
}
DIFFERENT |= {("logspace:0,1,3", "float32"): "bool"}
DIFFERENT |= {(f"fft.{name}:4", "float32"): "complex64 complex128" for name in ("fftfreq", "rfftfreq")}
# What is not the same without out= either.
# PyTorch writes the real part of a complex logsumexp into real tensors.
OTHER_RESULT = {("square", "bool"), ("logsumexp:x,0", "complex64"), ("linalg.lstsq:x,x", "complex64")}
# Rows with out= that have no name in PyTorch: nothing is recorded of them.
OWN = {"div_trunc"}
# Ops that read while they write where their indices say: an operand after the first may not be out, of the last two none.
APART = ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "gather", "index_select")
# Calls whose out may overlap an input in part.
OVERLAPS = """
    mvlgamma:x,1 nn.functional.logsigmoid threshold:x,0.5,0.0 inner matmul mm softmax:x,0 log_softmax:x,1 cummax:x,0 cummin:x,1
    tril triu:x,1 slice_scatter:x,x[:1],0,1,2 bmm:b,b mv:x,v tensordot:x,x,1 chain_matmul:x,x linalg.multi_dot:[x,x]
    nn.functional.linear:x,x,v _addmm_activation:v,x,x linalg.matmul:x,x linalg.inv inverse linalg.inv_ex linalg.solve:x,x
    linalg.solve_ex:x,x linalg.cholesky linalg.cholesky_ex linalg.qr linalg.svd svd linalg.pinv linalg.lstsq:x,x
    linalg.householder_product:x,v orgqr:x,v ormqr:x,v,x geqrf triangular_solve:x,x cholesky_solve:x,x cholesky_inverse
    linalg.tensorsolve:x,v linalg.matrix_power:x,2 linalg.lu_factor linalg.lu_factor_ex linalg.lu lu_solve:x,x,k
    linalg.lu_solve:x,k,x linalg.solve_triangular:x,x,upper=True
"""  # PyTorch refuses the last


def outcome(key: str, dtype: str) -> tuple[list[str], list[str]] | None:
    """The result's dtypes and those that the first out may have; None where PyTorch refuses the input."""
    number = RECORDED["calls"][key].split()[RECORDED["inputs"].index(dtype)]
    if number == "-":
        return None
    return tuple([c.DTYPES[d] for d in part.split()] for part in RECORDED["outcomes"][int(number)].split(" > "))


def listed(result):
    return list(result) if isinstance(result, tuple) else [result]


def outs_for(results, first=None, shape=None):
    """Empty tensors like the results; the first may have another dtype."""
    made = [torch.empty(r.shape if shape is None else shape, dtype=r.dtype, device=r.device) for r in results]
    if first is not None:
        made[0] = made[0].to(getattr(torch, first))
    return made


def call_into(key, names, outs):
    """The call with out=, which returns the very tensors."""
    result = listed(c.invoke(torch, ALL[key], names, out=tuple(outs) if len(outs) > 1 else outs[0]))
    assert len(result) == len(outs) and all(a is b for a, b in zip(result, outs, strict=True)), key
    return result


def values(t):
    wide = t.detach().cpu().to(torch.complex128 if t.is_complex() else torch.float64)
    return np.asarray(wide.numpy())


def differ(key, names, results, outs):
    """Where the call with out= and without leave different numbers. Uninitialised memory has none."""
    call_into(key, names, outs)
    if key.startswith("empty"):
        return []
    same = [a.shape == b.shape and np.array_equal(values(a), values(b), equal_nan=True) for a, b in zip(results, outs, strict=True)]
    return [] if all(same) else [key]


def examples(dtype, device="cpu", factories=True):
    """(call, operands, results) of all calls that work on the dtype."""
    for key in ALL if factories else c.CALLS:
        if key in c.FACTORIES and dtype != "float32":
            continue
        if outcome(key, dtype) is None or (not IS_PYTORCH and (key, dtype) in OTHER_RESULT):
            continue
        names = c.operands(torch, dtype, device)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = listed(c.invoke(torch, ALL[key], names))
        except (RuntimeError, TypeError):
            assert dtype == "complex64" and not IS_PYTORCH, key  # complex numbers are not everywhere
            continue
        yield key, names, results


def test_each_row_and_function_with_out_is_called_here():
    if IS_PYTORCH:
        pytest.skip("the rows are this library's")
    called = {name.rsplit(".", 1)[-1] for name, _ in (*ALL.values(), *c.DRAWS.values())}
    called |= {name.replace(".", "_") for name, _ in ALL.values()} | set("_" + name for name in called)
    missing = set()
    for row in torch._C.op_rows():
        if "? out=None" in row["signature"] and not called & {row["name"], row["name"].replace("linalg_", "")}:
            missing.add(row["name"])
    assert missing == OWN, f"call {missing - OWN} in out_calls.py; an op that PyTorch lacks goes into OWN of test_out.py"
    python = [f for f in vars(torch._functions).values() if hasattr(f, "_method")]
    assert len(python) > 15 and {f.__name__ for f in python} <= called


@pytest.mark.parametrize("dtype", c.INPUTS)
def test_dtypes_that_pytorch_takes(dtype):
    wrong = []
    for key, names, results in examples(dtype):
        expected, accepted = outcome(key, dtype)
        if [str(r.dtype).rsplit(".", 1)[-1] for r in results] != expected:
            wrong.append((key, "result", expected))
            continue
        unlike = () if IS_PYTORCH else DIFFERENT.get((key, dtype), "").split()
        for to in c.DTYPES.values():
            if to in unlike:
                continue
            outs = outs_for(results, to)
            before = values(outs[0].zero_())
            try:
                call_into(key, names, outs)
                if to not in accepted:
                    wrong.append((key, to, "was taken"))
            except (RuntimeError, TypeError) as error:
                of_joins = IS_PYTORCH or "can't be cast" in str(error)  # TypeError for these alone
                if to in accepted or (isinstance(error, TypeError) and not of_joins):
                    wrong.append((key, to, str(error)))
                assert IS_PYTORCH or np.array_equal(values(outs[0]), before), (key, to)  # refused before anything is written
    assert wrong == []


@pytest.mark.skipif(IS_PYTORCH, reason="the promises are this library's")
class TestOurs:
    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_same_numbers_in_memory_of_any_kind(self, device):
        wrong = []
        with torch.cuda.emulate():
            for key, names, results in examples("float32", device, factories=device == "cpu"):
                wrong += differ(key, names, results, outs_for(results))
                strided = [torch.empty((*r.shape, 2), dtype=r.dtype, device=r.device).zero_()[..., 0] for r in results]
                places = [(s.data_ptr(), s.stride()) for s in strided]
                wrong += differ(key, names, results, strided)
                assert places == [(s.data_ptr(), s.stride()) for s in strided], key
        assert wrong == []

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
    def test_out_without_elements_takes_the_shape_silently(self, dtype):
        wrong = []
        for key, names, results in examples(dtype):
            with warnings.catch_warnings():
                warnings.simplefilter("error" if results[0].numel() else "ignore")
                warnings.filterwarnings("ignore", message=".*(degrees of freedom|deprecated)")
                wrong += differ(key, names, results, outs_for(results, shape=(0,)))
        assert wrong == []

    def test_out_of_another_shape_is_resized_with_a_warning(self):
        for key, names, results in examples("float32"):
            outs = outs_for(results, shape=(7, 1))
            with pytest.warns(UserWarning, match="resized"):
                assert differ(key, names, results, outs) == [], key

    def test_out_may_be_an_input(self):
        """The very tensor. One that overlaps it in part is refused before it is written, by those ops by which PyTorch refuses it."""
        same = refused = 0
        for key, names, results in examples("float32", factories=False):
            first = results[0]
            for name in ("x", "v", "b"):
                if first.dtype != torch.float32 or first.shape != names[name].shape:
                    continue
                names = c.operands(torch, "float32")
                outs = outs_for(results)
                outs[0] = names[name]
                if ALL[key][0] in APART and re.search(rf",.*\b{name}\b" if ALL[key][0] in APART[:6] else rf"\b{name}\b", ALL[key][1]):
                    with pytest.raises(RuntimeError, match="unsupported operation.*single memory location"):
                        call_into(key, names, outs)
                    continue
                call_into(key, names, outs)
                same += 1
                assert np.array_equal(values(outs[0]), values(first), equal_nan=True), key
                wide = torch.zeros(first.numel() + 1)
                names = c.operands(torch, "float32")
                given = wide[1:].reshape(first.shape).copy_(names[name])
                names[name] = given
                outs = [wide[:-1].reshape(first.shape), *outs_for(results)[1:]]
                if key in OVERLAPS.split() or not re.search(rf"\b{name}\b", ALL[key][1]):
                    call_into(key, names, outs)
                    assert np.array_equal(values(outs[0]), values(first), equal_nan=True), key
                    continue
                refused += 1
                before = values(wide)
                with pytest.raises(RuntimeError, match="unsupported operation.*single memory location"):
                    call_into(key, names, outs)
                assert np.array_equal(values(wide), before), key
        assert same > 100 and refused > 100

    def test_gradients_are_refused(self):
        for key, names, results in examples("float32", factories=False):
            differentiable = {k: v for k, v in names.items() if k in ("x", "b", "v") and k in ALL[key][1]}
            for tensor in differentiable.values():
                tensor.requires_grad_()
            outs = outs_for(results)
            with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
                call_into(key, names, outs)
            with torch.no_grad():
                assert differ(key, names, results, outs) == [], key
            for tensor in differentiable.values():
                tensor.requires_grad_(False)
            if outs[0].is_floating_point():
                outs[0].requires_grad_()
                with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
                    call_into(key, names, outs)

    def test_autocast_does_not_act(self):
        for key, names, results in examples("float32", factories=False):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert differ(key, names, results, outs_for(results)) == [], key
                assert torch.mm(names["x"], names["x"]).dtype == torch.bfloat16, key

    def test_versions_count_and_read_only_memory_is_refused(self):
        frozen = np.zeros((3, 3), np.float32)
        frozen.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            readonly = torch.from_numpy(frozen)
        for key, names, results in examples("float32", factories=False):
            outs = outs_for(results)
            call_into(key, names, outs)
            assert all(o._version >= 1 for o in outs), key
            if results[0].shape == (3, 3) and results[0].dtype == torch.float32:
                with pytest.raises(RuntimeError, match="read-only"):
                    call_into(key, names, [readonly, *outs[1:]])

    def test_methods_do_not_take_it(self):
        found = 0
        for key, names, results in examples("float32", factories=False):
            name, args = ALL[key]
            first, _, rest = args.partition(",")
            if first not in ("x", "v", "b") or "." in name or not hasattr(torch.Tensor, name):
                continue
            found += 1
            outs = outs_for(results)
            given = eval(f"_pack({rest})", {"_pack": lambda *a, **k: (a, k), **names})
            with pytest.raises(TypeError, match="out"):
                getattr(names[first], name)(*given[0], **given[1], out=tuple(outs) if len(outs) > 1 else outs[0])
        assert found > 150

    @pytest.mark.parametrize("out", [3, 1.5, "x", (), (1,), [None]])
    def test_what_is_no_tensor(self, out):
        x = torch.ones(2, 2)
        for call in (torch.abs, torch.msort, lambda t, out: torch.topk(t, 1, out=out), torch.aminmax, torch.linalg.qr, torch.linalg.lu):
            with pytest.raises(TypeError):
                call(x, out=out)

    def test_the_number_of_outs_must_be_that_of_the_results(self):
        x, a, n = torch.ones(2, 2), torch.empty(0), torch.empty(0, dtype=torch.int64)
        for call, outs in [
            (torch.abs, (a,)), (torch.sort, (a,)), (torch.sort, (a, n, n)), (torch.sort, a), (torch.msort, (a,)), (torch.aminmax, a),
            (torch.aminmax, (a,)), (torch.aminmax, (a, a, a)), (torch.linalg.qr, (a,)), (torch.linalg.lu_factor, (a, a, a)),
        ]:  # fmt: skip
            with pytest.raises(TypeError):
                call(x, out=outs)
        with pytest.raises(RuntimeError, match="as_tuple"):
            torch.nonzero(x, as_tuple=True, out=n)

    def test_a_list_serves_and_the_named_pair_has_the_outs(self):
        x, v, n = torch.tensor([3.0, 1.0, 2.0]), torch.empty(2), torch.empty(2, dtype=torch.int64)
        pair = torch.topk(x, 2, out=[v, n])
        assert pair.values is v and pair.indices is n and type(pair) is type(torch.topk(x, 2))
        assert v.tolist() == [3, 2] and n.tolist() == [0, 2]
        low, high = torch.empty(()), torch.empty(())
        pair = torch.aminmax(x, out=(low, high))
        assert pair.min is low and pair.max is high and low.item() == 1 and high.item() == 3

    def test_the_dtype_of_out_is_what_sums_compute_in(self):
        x = torch.tensor([0.5, 1.5, 250.0, 250.0])
        assert torch.sum(x, 0, out=torch.empty((), dtype=torch.int32)).item() == 501  # integers first
        assert torch.sum(x, 0, out=torch.empty((), dtype=torch.uint8)).item() == 501 % 256
        assert torch.prod(x, 0, out=torch.empty((), dtype=torch.bool)).item() is True
        assert torch.cumsum(x, 0, out=torch.empty(4, dtype=torch.int64)).tolist() == [0, 1, 251, 501]
        ones = torch.full((3000,), 1.0, dtype=torch.bfloat16)
        assert torch.cumsum(ones, 0, out=torch.empty(3000))[-1].item() == 3000
        with pytest.raises(NotImplementedError):
            torch.cumsum(x, 0, out=torch.empty(4, dtype=torch.bool))
        for wrong in (torch.sum, torch.mean, torch.prod):
            with pytest.raises(RuntimeError, match="dtype"):
                wrong(x, 0, dtype=torch.float64, out=torch.empty(()))
        fine = torch.std(torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16), 0, out=torch.empty(()))
        assert fine.item() == pytest.approx(1.5275252)

    def test_sources_may_be_the_target(self):
        """At positions that a write in order would read too late. (index_add and scatter refuse it.)"""
        p = torch.tensor([1, 2, 0])
        for write, want in [
            (lambda y: y.__setitem__(p, y), [3, 1, 2]), (lambda y: y.index_put_((p,), y, accumulate=True), [4, 3, 5]),
        ]:  # fmt: skip
            y = torch.tensor([1.0, 2.0, 3.0])
            write(y)
            assert y.tolist() == want

    def test_a_contraction_of_all_dimensions(self):
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        assert torch.tensordot(x, x, 2).item() == 30 and torch.tensordot(x, x, 2, out=torch.empty(())).shape == ()

    def test_drawn_numbers(self):
        names = c.operands(torch, "float32")
        for key, call in c.DRAWS.items():
            torch.manual_seed(5)
            result = c.invoke(torch, call, names)
            for out in (torch.empty_like(result), torch.empty(0, dtype=result.dtype)):
                torch.manual_seed(5)
                assert c.invoke(torch, call, names, out=out) is out, key
                assert out.tolist() == result.tolist(), key
        assert set(torch.bernoulli(names["p"], out=torch.empty(3, dtype=torch.int64)).tolist()) <= {0, 1}
        assert torch.normal(0.0, 1.0, (2,), out=torch.empty(2, dtype=torch.float64)).dtype == torch.float64
        with pytest.raises(NotImplementedError):
            torch.normal(names["p"], 1.0, out=torch.empty(3, dtype=torch.int64))
        with pytest.raises(RuntimeError, match="dtype"):
            torch.multinomial(names["p"], 1, out=torch.empty(1))
