"""Data in and out: tensor(), sharing with NumPy, buffers, DLPack, numbers, copies and pickles."""

import copy
import gc
import hashlib
import math
import pickle
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest

import ampnative as amp

INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
FLOATS = ["float8_e5m2", "float8_e4m3fn", "float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
ALL = ["bool", *INTEGERS, *FLOATS, *COMPLEX]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name) if name.startswith(("bf", "float8")) else name)


def sample(name, shape=(2, 3)):
    values = np.arange(math.prod(shape)).reshape(shape)
    if name.startswith("complex"):
        values = values * (1 - 2j)
    return (values % 2 if name == "bool" else values).astype(numpy_dtype(name))


# ---- tensor() ----


@pytest.mark.parametrize(
    "data, dtype, shape",
    [
        ([1, 2], "int64", (2,)),
        ([1, True], "int64", (2,)),
        ([True, False], "bool", (2,)),
        ([True, 1.5], "float32", (2,)),
        ([1, 2.5], "float32", (2,)),
        ([1, 1j], "complex64", (2,)),
        (3, "int64", ()),
        (3.5, "float32", ()),
        (True, "bool", ()),
        (2j, "complex64", ()),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([[1, 2, 3], (4, 5, 6)], "int64", (2, 3)),
        (range(3), "int64", (3,)),
        ([range(2), range(2)], "int64", (2, 2)),
        (bytearray(b"abc"), "int64", (3,)),
        (np.float32(1.5), "float32", ()),
        (np.float64(1.5), "float64", ()),
        (np.int8(1), "int8", ()),
        (np.bool_(True), "bool", ()),
        (ml_dtypes.bfloat16(1.5), "bfloat16", ()),
        ([np.float32(1.5)], "float32", (1,)),
        ([np.float64(1.5)], "float64", (1,)),
        ([np.int8(1), 2.5], "float32", (2,)),
        ([np.float16(1), 1], "float16", (2,)),
        ([np.float16(1), np.float32(2)], "float32", (2,)),
        ([np.array([1, 2]), np.array([3, 4])], "int64", (2, 2)),
        ([np.array([1.0, 2]), np.array([3, 4])], "float64", (2, 2)),
        ([np.array([1, 2], np.float32), [1, 2]], "float32", (2, 2)),
        (np.arange(6, dtype=np.int16).reshape(2, 3).T, "int16", (3, 2)),
        (np.arange(4)[::-1], "int64", (4,)),
        (np.arange(4, dtype=np.longlong), "int64", (4,)),
    ],
)
def test_inference(data, dtype, shape):
    t = amp.tensor(data)
    assert t.dtype is getattr(amp, dtype) and t.shape == shape and t.is_contiguous()
    expected = np.array(data.copy() if isinstance(data, np.ndarray) else data, dtype=object)
    assert t.tolist() == (np.array(data).tolist() if t.ndim == 0 else [_plain(x) for x in expected.tolist()])


def _plain(x):
    return (
        [_plain(y) for y in x]
        if isinstance(x, (list, tuple, range, np.ndarray))
        else (x.item() if hasattr(x, "item") else x)
    )


def test_inference_from_tensors():
    t = amp.tensor
    assert t([t(1.5), t(2)]).tolist() == [1.5, 2.0] and t([t(1.5), t(2)]).dtype is amp.float32
    assert t([t(1), 2.5]).dtype is amp.float32
    assert t([t(1, dtype=amp.int8)]).dtype is amp.int8
    assert t([t([1]), t([2])]).shape == (2,)
    with pytest.raises(ValueError, match="only one element tensors can be converted"):
        t([amp.ones(2)])
    with pytest.warns(UserWarning, match="copy construct"):
        source = amp.ones(2, requires_grad=True)
        made = t(source, dtype=amp.float16)
    assert made.dtype is amp.float16 and not made.requires_grad and made.is_leaf
    with pytest.warns(UserWarning):
        assert t(source).data_ptr() != source.data_ptr()


def test_default_dtype_counts():
    amp.set_default_dtype(amp.float64)
    try:
        assert amp.tensor(1.5).dtype is amp.float64 and amp.tensor([1j]).dtype is amp.complex128
        assert amp.tensor([1]).dtype is amp.int64 and amp.finfo().dtype == "float64"
    finally:
        amp.set_default_dtype(amp.float32)


@pytest.mark.parametrize("name", ALL)
def test_dtype_given(name):
    t = amp.tensor([0, 1, True, 1.0], dtype=getattr(amp, name))
    assert t.dtype is getattr(amp, name)
    assert t.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("name", FLOATS)
def test_floats_round_once(name):
    values = np.random.default_rng(0).standard_normal(2000) * 10.0 ** np.random.default_rng(1).uniform(-9, 2, 2000)
    values = [*values.tolist(), 0.0, -0.0, 1 + 2.0**-11 + 2.0**-40]
    got = amp.tensor(values, dtype=getattr(amp, name)).tolist()
    if name in ("float32", "float64", "float16"):
        assert got == np.array(values).astype(name).astype(np.float64).tolist()
    else:
        grid = np.arange(256 if "8" in name and name != "bfloat16" else 65536).astype(
            np.uint8 if "float8" in name else np.uint16
        )
        with np.errstate(invalid="ignore"):
            grid = grid.view(numpy_dtype(name)).astype(np.float64)
        grid = np.unique(grid[np.isfinite(grid)])
        for value, rounded in zip(values, got):
            assert abs(rounded - value) == np.abs(grid - value).min()
    assert math.copysign(1, got[-2]) == -1


def test_not_finite():
    for name in FLOATS:
        t = amp.tensor([math.nan, math.inf], dtype=getattr(amp, name)).tolist()
        assert math.isnan(t[0]) and not math.isfinite(t[1])
    assert amp.tensor([1e40]).tolist() == [math.inf] and amp.tensor([1e6], dtype=amp.float16).tolist() == [math.inf]


@pytest.mark.parametrize(
    "data, dtype, error, text",
    [
        ([[1, 2], [3]], None, ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)"),
        ([[1], [3, 4]], None, ValueError, r"expected sequence of length 1 at dim 1 \(got 2\)"),
        ([[[1, 2], [3, 4]], [[1, 2], [3]]], None, ValueError, r"length 2 at dim 2 \(got 1\)"),
        ([[1.0, 2.0], np.ones(3)], None, ValueError, "length 2 at dim 1"),
        ([[1.0, 2.0], np.ones((2, 2))], None, ValueError, "dimensions"),
        ([1, [2]], None, TypeError, "list"),
        ([[1], 2], None, TypeError, "not a sequence"),
        ("abc", None, TypeError, "invalid data type 'str'"),
        (["abc"], None, ValueError, "too many dimensions 'str'"),
        ([1, "a"], None, TypeError, "invalid data type 'str'"),
        (b"abc", None, TypeError, "invalid data type 'bytes'"),
        ([None], None, RuntimeError, "Could not infer dtype of NoneType"),
        ({1: 2}, None, RuntimeError, "Could not infer dtype of dict"),
        ((x for x in [1]), None, RuntimeError, "Could not infer dtype of generator"),
        ([2**63], None, ValueError, "Overflow when unpacking long long"),
        ([1, 2**64], "int32", ValueError, "Overflow when unpacking long long"),
        ([2**31], "int32", RuntimeError, "value cannot be converted to type int32 without overflow"),
        ([300], "uint8", RuntimeError, "value cannot be converted to type uint8 without overflow"),
        ([-256], "uint8", RuntimeError, "without overflow"),
        ([math.nan], "int32", RuntimeError, "value cannot be converted"),
        ([math.inf], "int64", RuntimeError, "value cannot be converted"),
        ([1e20], "int64", RuntimeError, "value cannot be converted"),
        ([1j], "float32", TypeError, "complex"),
        ([1j], "int32", TypeError, "complex"),
        (["1"], "float32", ValueError, "too many dimensions"),
        ([1, "1"], "float32", TypeError, "str"),
        (np.array(["a"]), None, TypeError, "supported dtypes are"),
        (np.array([None]), None, TypeError, "supported dtypes are"),
        (np.array([1], np.uint16), None, TypeError, "supported dtypes are"),
        (np.uint32(1), None, TypeError, "supported dtypes are"),
        (np.array([1.0], ">f4"), None, TypeError, "byte order.*newbyteorder"),
    ],
)
def test_refused_data(data, dtype, error, text):
    with pytest.raises(error, match=text):
        amp.tensor(data, dtype=dtype and getattr(amp, dtype))


def test_conversions_of_numbers():
    assert amp.tensor([1.7, -1.7], dtype=amp.int32).tolist() == [1, -1]
    assert amp.tensor([-1], dtype=amp.uint8).tolist() == [255]
    assert amp.tensor([3.5, 0.0, math.nan, 2, 1j], dtype=amp.bool).tolist() == [True, False, True, True, True]
    assert amp.tensor([2**70], dtype=amp.float64).tolist() == [2.0**70]
    assert amp.tensor([-(2**63)]).tolist() == [-(2**63)]

    class Index:
        def __index__(self):
            return 5

    class Float:
        def __float__(self):
            return 5.5

    assert amp.tensor([Index()], dtype=amp.int32).tolist() == [5]
    assert amp.tensor([Float()], dtype=amp.float32).tolist() == [5.5]
    with pytest.raises(RuntimeError, match="Could not infer dtype of Index"):
        amp.tensor(Index())


def test_hostile_sequences():
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="too many dimensions"):
        amp.tensor(endless)
    shrinking = [1, 2, 3, 4]

    class Shrink:
        def __index__(self):
            del shrinking[1:]
            return 1

    shrinking[0] = Shrink()
    with pytest.raises(ValueError, match="expected sequence of length 4"):
        amp.tensor(shrinking, dtype=amp.int32)

    class Liar:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i > 1:
                raise IndexError
            return i

    with pytest.raises(ValueError, match="expected sequence of length 3"):
        amp.tensor(Liar())

    class Broken:
        def __len__(self):
            raise ZeroDivisionError

        def __getitem__(self, i):
            return i

    with pytest.raises(ZeroDivisionError):
        amp.tensor(Broken())


def test_options():
    assert amp.tensor([1.0], requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        amp.tensor([1], requires_grad=True)
    assert amp.tensor([1.0], device="meta").device.type == "meta"
    for call in (
        lambda: amp.tensor(),
        lambda: amp.tensor(1, 2),
        lambda: amp.tensor(1, foo=2),
        lambda: amp.tensor(1, data=2),
    ):
        with pytest.raises(TypeError):
            call()
    assert amp.tensor(data=[1]).tolist() == [1]
    with amp.cuda.emulate():
        t = amp.tensor([1.0, 2.0], device="cuda")
        assert t.device == amp.device("cuda:0") and t.tolist() == [1.0, 2.0]
        assert amp.tensor(np.ones(2), device="cuda", dtype=amp.float16).dtype is amp.float16


# ---- sharing ----


@pytest.mark.parametrize("name", ALL)
def test_round_trip(name):
    array = sample(name)
    t = amp.from_numpy(array)
    assert t.dtype is getattr(amp, name) and t.shape == (2, 3) and t.tolist() == array.tolist()
    back = t.numpy()
    assert back.dtype == array.dtype and np.shares_memory(back, array) and (back == array).all()
    back[0, 0] = 1
    assert array[0, 0] == 1 and t[0, 0].item() == 1
    assert np.asarray(t).dtype == array.dtype and (np.asarray(t) == array).all()
    assert (amp.tensor(array).numpy() == array).all() and not np.shares_memory(amp.tensor(array).numpy(), array)


def test_strides_are_kept():
    base = np.arange(24.0).reshape(2, 3, 4)
    for view in (
        base.T,
        base[:, ::2, 1:3],
        base[..., 0],
        base[1:1],
        np.broadcast_to(base.copy()[:1], (2, 3, 4)).copy(),
    ):
        t = amp.from_numpy(view)
        assert t.tolist() == view.tolist() and t.stride() == tuple(
            s // 8 if n > 1 else t.stride(i) for i, (s, n) in enumerate(zip(view.strides, view.shape))
        )
        assert (t.numpy() == view).all() and np.shares_memory(t.numpy(), view) == bool(view.size)
    assert amp.from_numpy(base[:, :1][:, ::-1]).shape == (2, 1, 4)
    assert amp.from_numpy(np.array(1.5)).shape == ()


def test_misaligned_array():
    raw = np.zeros(17, np.uint8)[1:].view(np.float64)
    raw[:] = [1.5, 2.5]
    assert amp.from_numpy(raw).tolist() == [1.5, 2.5] and (amp.from_numpy(raw) + 1).tolist() == [2.5, 3.5]


def test_refused_arrays():
    with pytest.raises(ValueError, match=r"negative.*array\.copy\(\)"):
        amp.from_numpy(np.arange(3)[::-1])
    odd = np.zeros(4, np.dtype([("a", "i1"), ("b", "f4")]))["b"]
    with pytest.raises(ValueError, match="not a multiple of the element size"):
        amp.from_numpy(odd)
    for wrong in ([1], np.float32(1), None):
        with pytest.raises(TypeError, match=r"expected np.ndarray \(got"):
            amp.from_numpy(wrong)
    for wrong in ("U1", object, "m8[s]", "u2", "u4", "u8", "g", "f4,i4"):
        with pytest.raises(TypeError, match="supported dtypes are"):
            amp.from_numpy(np.zeros(2, wrong))
    with pytest.raises(TypeError, match="byte order"):
        amp.from_numpy(np.zeros(2, ">f8"))


def test_read_only_arrays_warn_once():
    array = np.ones(3)
    array.flags.writeable = False
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert amp.tensor(array).tolist() == [1, 1, 1] and not seen
        amp.from_numpy(array)
        amp.from_numpy(array)
    assert len(seen) <= 1 and all("not writable" in str(w.message) for w in seen)


def test_as_tensor():
    array = np.ones(3)
    assert np.shares_memory(amp.as_tensor(array).numpy(), array)
    assert amp.as_tensor(array, dtype=amp.float32).dtype is amp.float32
    t = amp.ones(2)
    assert amp.as_tensor(t) is t and amp.as_tensor(t, amp.float16).dtype is amp.float16
    assert amp.as_tensor([1, 2]).tolist() == [1, 2] and amp.as_tensor(np.float32(3)).dtype is amp.float32


def test_asarray():
    array = np.ones(3)
    assert np.shares_memory(amp.asarray(array).numpy(), array)
    assert np.shares_memory(amp.asarray(array, copy=False).numpy(), array)
    assert not np.shares_memory(amp.asarray(array, copy=True).numpy(), array)
    assert amp.asarray(array, requires_grad=True).requires_grad
    assert amp.asarray([1, 2]).tolist() == [1, 2] and amp.asarray(3).shape == ()
    data = bytearray(b"abcd")
    shared = amp.asarray(data)
    assert shared.dtype is amp.uint8 and shared.tolist() == [97, 98, 99, 100]
    data[0] = 1
    assert shared[0].item() == 1
    for call in (lambda: amp.asarray([1], copy=False), lambda: amp.asarray(array, dtype=amp.float16, copy=False)):
        with pytest.raises(ValueError, match="can't alias"):
            call()
    t = amp.ones(2)
    assert amp.asarray(t) is t


def test_frombuffer():
    data = bytearray(range(16))
    t = amp.frombuffer(data, dtype=amp.int32)
    assert t.tolist() == np.frombuffer(data, np.int32).tolist()
    assert (
        amp.frombuffer(data, dtype=amp.int16, count=2, offset=3).tolist()
        == np.frombuffer(data, np.int16, 2, 3).tolist()
    )
    data[0] = 255
    assert t[0].item() == np.frombuffer(data, np.int32)[0]
    with pytest.raises(BufferError):
        data.append(1)
    del t
    gc.collect()
    data.append(1)
    with pytest.warns(UserWarning, match="not writable"):
        amp.frombuffer(b"abcd", dtype=amp.uint8)


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(dtype="int32"), "must be a multiple of element size"),
        (dict(dtype="int8", offset=5), r"offset \(5 bytes\)"),
        (dict(dtype="int8", offset=-1), "offset"),
        (dict(dtype="int8", count=0), "must not be 0"),
        (dict(dtype="int32", count=2), "requested buffer length"),
        (dict(dtype="int32", count=sys.maxsize), "requested buffer length"),
    ],
)
def test_frombuffer_errors(options, text):
    options["dtype"] = getattr(amp, options["dtype"])
    with pytest.raises(ValueError, match=text):
        amp.frombuffer(bytearray(5), **options)
    with pytest.raises(ValueError, match="buffer protocol"):
        amp.frombuffer(3, dtype=amp.int8)
    with pytest.raises(TypeError, match="missing"):
        amp.frombuffer(bytearray(5))


def test_numpy_refusals():
    x = amp.ones(2, requires_grad=True)
    for refused in (x, x * 2):
        with pytest.raises(RuntimeError, match=r"requires grad. Use tensor.detach\(\).numpy\(\)"):
            refused.numpy()
        with pytest.raises(RuntimeError, match="requires grad"):
            np.asarray(refused)
        assert refused.numpy(force=True).tolist() == refused.tolist()
    with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
        amp.ones(2, device="meta").numpy()
    with amp.cuda.emulate():
        y = amp.ones(2, device="cuda")
        with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
            y.numpy()
        with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
            np.asarray(y)
        assert y.cpu().numpy().tolist() == y.numpy(force=True).tolist() == [1, 1]


def test_array_protocol():
    t = amp.tensor([1.0, 2.0])
    assert np.shares_memory(np.asarray(t), t.numpy())
    assert not np.shares_memory(np.array(t), t.numpy())
    assert np.array(t, dtype=np.int32).tolist() == [1, 2] and np.asarray(t, np.float64).dtype == np.float64
    with pytest.raises(ValueError):
        np.asarray(t, dtype=np.float64, copy=False)
    assert t.__array__(np.float16).dtype == np.float16 and t.__array__(dtype=amp.float16).dtype == np.float16
    assert not np.shares_memory(t.__array__(copy=True), t.numpy())
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        t.__array__(np.float64, copy=False)
    assert isinstance(np.ones(2, np.float32) * t, amp.Tensor) and (np.ones(2, np.float32) * t).tolist() == [1, 2]
    half = amp.ones(2, dtype=amp.bfloat16)
    assert np.asarray(half).dtype == ml_dtypes.bfloat16 and np.shares_memory(np.asarray(half), half.numpy())


def test_arrays_outlive_tensors():
    array = amp.arange(1000.0).numpy()
    view = memoryview(amp.arange(1000.0))
    gc.collect()
    junk = [amp.zeros(1000) for _ in range(10)]
    assert array.sum() == 499500 and view[999] == 999.0 and len(junk) == 10
    t = amp.ones(4)
    array = t.numpy()
    t.data = amp.zeros(9)
    junk = [amp.zeros(4) for _ in range(10)]
    assert array.tolist() == [1, 1, 1, 1]
    source = np.ones(4)
    count = sys.getrefcount(source)
    t = amp.from_numpy(source)
    assert sys.getrefcount(source) > count
    view = t[1:]
    del t
    assert view.tolist() == [1, 1, 1]
    del view
    gc.collect()
    assert sys.getrefcount(source) == count


# ---- buffer protocol ----


@pytest.mark.parametrize("name", [n for n in ALL if not n.startswith(("bf", "float8", "complex"))])
def test_memoryview(name):
    array = sample(name)
    view = memoryview(amp.from_numpy(array))
    assert view.format == memoryview(array).format and view.shape == (2, 3) and view.strides == array.strides
    assert view.itemsize == array.itemsize and view.nbytes == array.nbytes and not view.readonly and view.contiguous
    assert bytes(view) == array.tobytes()
    if name != "float16":
        assert view.tolist() == array.tolist()


def test_memoryview_of_views():
    t = amp.arange(6.0).reshape(2, 3)
    assert memoryview(t.T).tolist() == t.T.tolist() and memoryview(t.T).f_contiguous
    assert memoryview(t[:, ::2]).tolist() == t[:, ::2].tolist()
    assert memoryview(amp.tensor(1.5)).tolist() == 1.5 and memoryview(amp.tensor(1.5)).shape == ()
    assert memoryview(amp.zeros(0, 3)).shape == (0, 3)
    assert np.asarray(amp.tensor([1j])).tolist() == [1j]
    assert bytearray(amp.tensor([1, 2], dtype=amp.uint8)) == b"\x01\x02"
    with pytest.raises(BufferError, match="contiguous"):
        hashlib.sha256(t.T)
    assert hashlib.sha256(t).digest() == hashlib.sha256(bytes(t)).digest()
    view = memoryview(t)
    view[1, 2] = 9.0
    assert t[1, 2].item() == 9.0


def test_buffer_refusals():
    with pytest.raises(BufferError, match=r"detach\(\)"):
        memoryview(amp.ones(2, requires_grad=True))
    for name in ("bfloat16", "float8_e5m2"):
        with pytest.raises(BufferError, match=r"numpy\(\)"):
            memoryview(amp.ones(2).to(getattr(amp, name)))
    with amp.cuda.emulate(), pytest.raises(BufferError, match=r"cpu\(\)"):
        memoryview(amp.ones(2, device="cuda"))


# ---- DLPack ----


@pytest.mark.parametrize("name", [n for n in ALL if not n.startswith(("bf", "float8"))])
def test_dlpack_with_numpy(name):
    array = sample(name)
    t = amp.from_dlpack(array)
    assert t.dtype is getattr(amp, name) and t.tolist() == array.tolist() and np.shares_memory(t.numpy(), array)
    back = np.from_dlpack(t)
    assert back.dtype == array.dtype and np.shares_memory(back, array)
    assert amp.from_dlpack(array.T).stride() == (1, 3)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_with_itself(name, version):
    t = amp.from_numpy(sample(name))
    other = amp.from_dlpack(t.__dlpack__(max_version=version))
    assert other.dtype is t.dtype and other.tolist() == t.tolist() and other.data_ptr() == t.data_ptr()
    assert amp.from_dlpack(t.T).stride() == t.T.stride()
    assert amp.from_dlpack(amp.zeros(0, 3)).shape == (0, 3) and amp.from_dlpack(amp.tensor(2.5)).item() == 2.5


def test_dlpack_capsules():
    t = amp.ones(3)
    plain, versioned = t.__dlpack__(), t.__dlpack__(max_version=(1, 0))
    assert 'capsule object "dltensor"' in repr(plain) and '"dltensor_versioned"' in repr(versioned)
    for capsule in (plain, versioned):
        amp.from_dlpack(capsule)
        assert "used_dltensor" in repr(capsule)
        with pytest.raises(RuntimeError, match="consumed only once"):
            amp.from_dlpack(capsule)
    copied = amp.from_dlpack(t.__dlpack__(copy=True))
    assert copied.data_ptr() != t.data_ptr() and copied.tolist() == [1, 1, 1]
    assert amp.from_dlpack(t, copy=True).data_ptr() != t.data_ptr()
    assert t.__dlpack_device__() == (1, 0)
    for wrong in (3, object()):
        with pytest.raises(RuntimeError, match="invalid capsule"):
            amp.from_dlpack(wrong)


def test_dlpack_refusals():
    with pytest.raises(BufferError, match=r"detach\(\)"):
        amp.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(AssertionError, match="stream should be None"):
        amp.ones(2).__dlpack__(stream=3)
    with pytest.raises(BufferError):
        amp.ones(2).__dlpack__(dl_device=(2, 0))
    for wrong in ({"max_version": 1}, {"dl_device": 1}, {"foo": 1}):
        with pytest.raises(TypeError):
            amp.ones(2).__dlpack__(**wrong)
    with pytest.raises(BufferError, match="negative strides"):
        amp.from_dlpack(np.arange(3)[::-1])
    with pytest.raises(BufferError, match="no counterpart"):
        amp.from_dlpack(np.arange(3, dtype=np.uint16))
    with amp.cuda.emulate():
        y = amp.ones(2, device="cuda")
        with pytest.raises(BufferError, match=r"cpu\(\)"):
            y.__dlpack__()
        with pytest.raises(BufferError):
            amp.from_dlpack(y)


def test_dlpack_read_only_memory_is_copied():
    array = np.ones(3)
    array.flags.writeable = False
    t = amp.from_dlpack(array)
    t[0] = 5
    assert array.tolist() == [1, 1, 1] and t.tolist() == [5, 1, 1]


def test_dlpack_lifetimes():
    source = np.ones(1000)
    count = sys.getrefcount(source)
    for _ in range(50):
        t = amp.from_dlpack(source)
        capsule = t.__dlpack__()
        amp.from_dlpack(t.__dlpack__())
        del t, capsule
    gc.collect()
    assert sys.getrefcount(source) == count


# ---- numbers ----


def test_item_and_lists():
    assert amp.tensor([[3.0]]).item() == 3.0 and type(amp.tensor(True).item()) is bool
    assert type(amp.tensor(3).item()) is int and amp.tensor(1j).item() == 1j
    for wrong, n in ((amp.zeros(2), 2), (amp.zeros(0), 0)):
        with pytest.raises(RuntimeError, match=f"a Tensor with {n} elements cannot be converted to Scalar"):
            wrong.item()
    assert amp.zeros(2, 0).tolist() == [[], []] and amp.zeros(0, 2).tolist() == [] and amp.tensor(1).tolist() == 1
    assert amp.arange(6).reshape(2, 3).T.tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(RuntimeError, match="meta"):
        amp.ones((), device="meta").item()
    with pytest.raises(NotImplementedError, match="no data"):
        amp.ones(2, device="meta").tolist()


def test_bool():
    assert not amp.tensor([[0.0]]) and amp.tensor(math.nan) and amp.tensor(-0.0).item() == 0 and not amp.tensor(-0.0)
    assert amp.tensor(2j) and not amp.tensor(False) and amp.tensor([1], dtype=amp.bfloat16)
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        bool(amp.zeros(2))
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with no values is ambiguous"):
        bool(amp.zeros(0))


def test_number_conversions():
    t = amp.tensor
    assert int(t(1.9)) == 1 and int(t([-1.9])) == -1 and float(t(3)) == 3.0 and complex(t(1.5)) == 1.5
    assert float(t(1 + 0j)) == 1.0 and int(t(True)) == 1 and complex(t(2j)) == 2j
    for convert in (int, float, complex):
        for wrong in (amp.zeros(2), amp.zeros(0)):
            with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
                convert(wrong)
    with pytest.raises(ValueError):
        int(t(math.nan))
    with pytest.raises(OverflowError):
        int(t(math.inf))
    for convert in (int, float):
        with pytest.raises(RuntimeError, match="value cannot be converted"):
            convert(t(1j))
    assert range(5)[t(2)] == 2 and range(5)[t([2])] == 2 and [1, 2][t(True)] == 2
    for wrong in (t(2.5), t([1, 2]), t(1j)):
        with pytest.raises(TypeError, match="only integer tensors of a single element can be converted to an index"):
            range(5)[wrong]
    assert math.sqrt(t(4.0)) == 2.0 and "%d" % t(3) == "3"  # noqa: UP031  the operator is what is tested


def test_len_and_contains():
    assert len(amp.zeros(3, 2)) == 3 and len(amp.zeros(0)) == 0
    with pytest.raises(TypeError, match="len\\(\\) of a 0-d tensor"):
        len(amp.tensor(1))
    t = amp.tensor([1, 2])
    assert 1 in t and 3 not in t and 2.0 in t and amp.tensor(1) in t and 1 in amp.tensor(1) and True in t
    for wrong in ("a", None, [1]):
        with pytest.raises(RuntimeError, match="only supports Tensor or scalar, but you passed in a"):
            wrong in t  # noqa: B015


def test_format():
    assert f"{amp.tensor(1.5):.3f}" == "1.500" and f"{amp.tensor(3):d}" == "3" and f"{amp.tensor(1.5)}" == "1.5"
    assert f"{amp.tensor([1.5])}" == "tensor([1.5000])"
    assert f"{amp.tensor(1.5, requires_grad=True):.2f}" == "1.50"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{amp.tensor([1.5]):.3f}"


def test_element_assignment():
    t = amp.zeros(3, dtype=amp.int64)
    t[0] = 1.5
    t[1] = amp.tensor(7)
    t[2] = np.int64(-3)
    assert t.tolist() == [1, 7, -3]
    with pytest.raises((RuntimeError, ValueError, OverflowError)):
        t[0] = 2**63
    with pytest.raises(RuntimeError, match="value cannot be converted"):
        amp.zeros(3, dtype=amp.uint8)[0] = 300
    with pytest.raises(TypeError):
        t[0] = "a"


# ---- copies and pickles ----


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickle(name, protocol):
    t = amp.from_numpy(sample(name))
    for tensor in (t, t.T, t[0, 0], t[:0]):
        other = pickle.loads(pickle.dumps(tensor, protocol))
        assert type(other) is amp.Tensor and other.dtype is tensor.dtype and other.shape == tensor.shape
        assert other.tolist() == tensor.tolist() and other.device == tensor.device and not other.requires_grad


def test_pickle_details():
    x = amp.ones(2, requires_grad=True)
    x.note = "kept"
    other = pickle.loads(pickle.dumps(x))
    assert other.requires_grad and other.is_leaf and other.note == "kept"
    assert pickle.loads(pickle.dumps(x * 2)).requires_grad
    p = amp.nn.Parameter(amp.ones(2))
    assert type(pickle.loads(pickle.dumps(p))) is amp.nn.Parameter and pickle.loads(pickle.dumps(p)).requires_grad
    with amp.cuda.emulate():
        y = pickle.loads(pickle.dumps(amp.ones(2, device="cuda")))
        assert y.device == amp.device("cuda:0") and y.tolist() == [1, 1]
    rebuild, parts = amp.ones(2).__reduce_ex__(4)[:2]
    for position, wrong in ((2, (3,)), (2, (-1,)), (2, (2**62, 2**62)), (3, b"123")):
        damaged = list(parts)
        damaged[position] = wrong if position == 3 else amp.Size(wrong)
        with pytest.raises(ValueError):
            rebuild(*damaged)


def test_deepcopy():
    x = amp.ones(2, requires_grad=True)
    (x * x).sum().backward()
    x.tag = [1]
    y = copy.deepcopy(x)
    assert y.requires_grad and y.is_leaf and y.tolist() == x.tolist() and y.data_ptr() != x.data_ptr()
    assert y.grad.tolist() == [2, 2] and y.grad.data_ptr() != x.grad.data_ptr() and y.tag == [1] and y.tag is not x.tag
    a, b = copy.deepcopy([x, x])
    assert a is b
    assert type(copy.deepcopy(amp.nn.Parameter(amp.ones(2)))) is amp.nn.Parameter
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(x * 2)
    assert copy.deepcopy(amp.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_shallow_copy():
    x = amp.arange(4.0)
    y = copy.copy(x)
    y[0] = 9
    assert x[0].item() == 9 and y is not x
    assert copy.copy(amp.ones(1, requires_grad=True)).requires_grad
