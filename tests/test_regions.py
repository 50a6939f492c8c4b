"""Regions beyond the records: threads that share an instance, copies, names of arguments, collectors at the wrong moment."""

import collections
import copy
import gc
import pickle
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import ampnative as torch
from ampnative import amp
from ampnative.amp.autocast_mode import autocast

OFF, BF16 = (False, torch.bfloat16), (True, torch.bfloat16)


def state():
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


@pytest.mark.parametrize("first_out", ["worker", "trainer"])
def test_two_threads_inside_one_instance(first_out):
    """Each leaves to the state that it came from, whoever leaves first."""
    shared = torch.autocast("cpu")
    entered, leave = threading.Event(), threading.Event()
    seen = {}

    def worker():
        with shared:
            entered.set()
            leave.wait(10)
        seen["worker"] = state()

    thread = threading.Thread(target=worker)
    with torch.autocast("cpu", dtype=torch.float16):
        thread.start()
        assert entered.wait(10)
        with shared:
            if first_out == "worker":
                leave.set()
                thread.join()
            assert state() == BF16
        assert state() == (True, torch.float16)
    leave.set()
    thread.join()
    assert seen["worker"] == OFF and state() == OFF


def test_arguments_by_name():
    assert torch.is_autocast_enabled(device_type="cpu") is False
    assert torch.get_autocast_dtype(device_type="cpu") is torch.bfloat16
    torch.set_autocast_enabled(device_type="cpu", enabled=True)
    torch.set_autocast_dtype("cpu", dtype=torch.float16)
    assert state() == (True, torch.float16)
    torch.set_autocast_enabled("cpu", enabled=False)
    torch.set_autocast_dtype(device_type="cpu", dtype=torch.bfloat16)
    assert state() == OFF and amp.is_autocast_available(device_type="cpu")
    torch.set_float32_matmul_precision(precision="high")
    assert torch.get_float32_matmul_precision() == "high"
    torch.backends._reset()
    for call in (lambda: torch.is_autocast_enabled(device="cpu"), lambda: torch.get_autocast_dtype(),
                 lambda: torch.set_autocast_dtype("cpu", device_type="cpu"), lambda: torch.is_autocast_enabled("cpu", "cuda")):  # fmt: skip
        with pytest.raises(TypeError):
            call()


class Named(autocast):
    def __init__(self, name):
        super().__init__("cpu", torch.float16, cache_enabled=False)
        self.name = name


@pytest.mark.filterwarnings("ignore:ampnative.cpu.amp")
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_copies(again):
    region = torch.autocast("cpu", torch.float16)
    region.note = [3]
    for original in (region, Named("a"), torch.cpu.amp.autocast(dtype=torch.float16)):
        new = again(original)
        assert type(new) is type(original) and new is not original and vars(new) == vars(original)
        with new:
            assert state() == (True, torch.float16)
        assert state() == OFF


def test_what_a_region_will_do_can_be_changed():
    region = torch.autocast("cpu")
    region.fast_dtype, region._enabled = torch.float16, False
    with region:
        assert state() == (False, torch.float16)
    region._enabled = True
    with region:
        assert state() == (True, torch.float16)
    with pytest.raises(TypeError):
        region.fast_dtype = "float16"


def test_an_indexed_cuda_device_takes_the_dtypes_of_other_devices():
    with torch.cuda.emulate():
        for dtype in (torch.float32, torch.int32):
            with pytest.warns(UserWarning, match="target dtype is not supported. Disabling autocast"):
                assert torch.autocast("cuda:0", dtype=dtype)._enabled is False
        assert torch.autocast("cuda:0", dtype=torch.bfloat16)._enabled is True


def test_a_backend_that_nobody_registered():
    with pytest.raises(AssertionError, match="privateuseone"):
        torch.autocast("privateuseone")


def collecting(code):
    """Run in a process of its own: a crash is a failed test, not the end of all."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


GARBAGE = """
import gc
import ampnative as torch
class G:
    def __init__(self): self.me = self
    def __del__(self): {finalizer}
ws = [torch.randn(8, 8, requires_grad=True) for _ in range(60)]
x = torch.randn(8, 8)
gc.set_threshold(1)
for _ in range(20):
    {head}
    with torch.autocast("cpu"):
        for w in ws + ws:
            G(); torch.mm(x, w)
"""


@pytest.mark.parametrize("head", ["pass", "report = torch.debug.op_report(); report.__enter__()"])
def test_a_finalizer_empties_the_cache_while_a_cast_is_kept_or_found(head):
    collecting(GARBAGE.format(finalizer="torch.clear_autocast_cache()", head=head))


def test_a_finalizer_that_enters_a_region_inside_an_op_changes_nothing():
    class G:
        def __init__(self):
            self.me = self

        def __del__(self):
            with torch.autocast("cpu"):
                pass

    q = torch.randn(2, 4, 8)
    before = gc.get_threshold()
    with torch.autocast("cpu"):
        expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        gc.set_threshold(1)
        try:
            for _ in range(100):
                G()
                assert torch.equal(torch.nn.functional.scaled_dot_product_attention(q, q, q), expected)
        finally:
            gc.set_threshold(*before)


# ---- casts of own functions' arguments ----


@pytest.mark.parametrize(
    "make",
    [dict, collections.OrderedDict, lambda d: collections.defaultdict(list, d), types.MappingProxyType],
    ids=["dict", "OrderedDict", "defaultdict", "mappingproxy"],
)
def test_mappings_of_any_kind_are_cast(make):
    seen = amp.register_op(lambda d: d, "lower")
    with torch.autocast("cpu"):
        out = seen(make({"a": torch.ones(2), "b": [torch.ones(1)], "n": 3}))
    assert out["a"].dtype is torch.bfloat16 and out["b"][0].dtype is torch.bfloat16 and out["n"] == 3
    assert isinstance(out, dict) and (make is types.MappingProxyType or type(out) is type(make({})))


def test_a_list_with_a_constructor_of_its_own_is_cast_to_a_list():
    class Batch(list):
        def __init__(self, items, name):
            super().__init__(items)

    with torch.autocast("cpu"):
        (out,) = amp.cast_args(Batch([torch.ones(2)], "x"))
    assert type(out) is list and out[0].dtype is torch.bfloat16


def test_device_types_with_an_index_and_others():
    with torch.autocast("cpu"):
        assert amp.cast_args(torch.ones(2), device_type="cpu:0")[0].dtype is torch.bfloat16
    with pytest.raises(ValueError, match="'cpu' or 'cuda'"):
        amp.cast_args(torch.ones(2), device_type="tpu")
    with pytest.raises(ValueError, match="policies are for"):
        amp.register_op(len, {1: "lower", "cpu": "lower"})


def test_a_banned_function_of_ones_own_is_named():
    def dense(x):
        return x

    with torch.autocast("cpu"), pytest.raises(RuntimeError, match='dense is unsafe to autocast: its policy is "banned"'):
        amp.register_op(dense, "banned")(torch.ones(2))
    with pytest.raises(TypeError, match="dense is an own function"):
        amp.result_dtype(amp.register_op(dense, "lower"), torch.float32)


def test_settings_objects_are_their_own_copies():
    node = torch.backends.cuda.matmul
    assert copy.copy(node) is node and copy.deepcopy(node) is node


def test_embedded_nulls_are_refused():
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.get_autocast_dtype("cpu\0")
    with pytest.raises(ValueError, match="null character"):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2), precision="ieee\0")
    with pytest.warns(UserWarning, match="nothing is changed"):
        torch.set_float32_matmul_precision(b"medium\0x")


def test_results_that_do_not_fit_in_place():
    x = torch.tensor([1, 2, 3])
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.clamp_(torch.tensor([2.5] * 3))
    assert x.tolist() == [1, 2, 3]
    with pytest.raises(RuntimeError, match="Integer division with addcdiv"):
        torch.addcdiv(torch.ones(3), x, x)
    with pytest.raises(RuntimeError):
        amp.result_dtype("mean", torch.int64)
    assert amp.scale_loss(collections.namedtuple("L", "a b")(1.0, np.float32(2.0)), 4.0) == (4.0, 8.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the warning is for where there is no CUDA")
def test_a_region_without_its_device_says_what_stands_for_it():
    told = r"^User provided device_type of 'cuda', but CUDA is not available. Disabling\. .*cuda\.emulate\(\)"
    with pytest.warns(UserWarning, match=told):
        torch.autocast("cuda")
