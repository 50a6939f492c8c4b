"""dtype, device, Size, Generator, finfo and iinfo."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import ampnative as amp

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float8_e5m2",
         "float8_e4m3fn", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
ALIASES = {
    "half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32", "long": "int64",
    "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name) if name.startswith(("bf", "float8")) else name)


@pytest.mark.parametrize("name", NAMES)
def test_dtype(name):
    dtype, reference = getattr(amp, name), numpy_dtype(name)
    assert repr(dtype) == str(dtype) == f"ampnative.{name}"
    assert dtype.dtype == reference and dtype == reference and reference == dtype
    assert dtype == reference.type and dtype != name and dtype is not None
    assert hash(dtype) == hash(reference)
    assert dtype.itemsize == reference.itemsize
    assert dtype.is_floating_point == ("float" in name)
    assert dtype.is_complex == name.startswith("complex")
    assert dtype.is_signed == (name not in ("bool", "uint8"))
    assert np.zeros(3, dtype=dtype).dtype == reference
    assert pickle.loads(pickle.dumps(dtype)) is dtype and copy.deepcopy(dtype) is dtype and copy.copy(dtype) is dtype
    assert [other for other in NAMES if getattr(amp, other) == dtype] == [name]
    assert isinstance(dtype, amp.dtype)


def test_dtype_details():
    for alias, name in ALIASES.items():
        assert getattr(amp, alias) is getattr(amp, name)
    assert {amp.float16: 1}[np.dtype(np.float16)] == 1
    assert amp.float32.to_complex() is amp.complex64 and amp.complex128.to_real() is amp.float64
    assert amp.int8.to_real() is amp.int8
    with pytest.raises(RuntimeError, match="Unknown Complex ScalarType"):
        amp.int32.to_complex()
    with pytest.raises(TypeError):
        amp.dtype()
    with pytest.raises(TypeError):
        amp.float32 < amp.float64  # noqa: B015
    with pytest.raises((TypeError, AttributeError)):
        amp.dtype.x = 1
    assert amp.int64 == np.longlong
    assert amp.float32 != np.dtype(">f4") and amp.float32 != int  # noqa: E721  the comparison is what is tested


def test_dtype_arguments():
    assert amp.zeros(1, dtype=float).dtype is amp.float64
    assert amp.zeros(1, dtype=int).dtype is amp.int64
    assert amp.zeros(1, dtype=bool).dtype is amp.bool
    assert amp.zeros(1, dtype=np.float16).dtype is amp.float16
    assert amp.zeros(1, dtype=np.dtype("int8")).dtype is amp.int8
    assert amp.zeros(1, dtype=ml_dtypes.bfloat16).dtype is amp.bfloat16
    for wrong in ("float32", 3, np.uint16, np.dtype("f4,i4"), np.dtype(">f4"), np.dtype(object), str):
        with pytest.raises(TypeError):
            amp.tensor([1], dtype=wrong)


def test_device():
    device = amp.device
    assert repr(device("cuda:0")) == "device(type='cuda', index=0)" and str(device("cuda", 0)) == "cuda:0"
    assert repr(device("cpu")) == "device(type='cpu')" and str(device("cuda")) == "cuda"
    assert device("cuda:0") == device("cuda", 0) == device(type="cuda", index=0) == device(0)
    assert device("cuda") != device("cuda:0") and device("cpu") != "cpu"
    assert hash(device("cuda:0")) == hash(device("cuda", 0)) != hash(device("cuda"))
    assert device("cpu").index is None and device("cuda:3").index == 3 and device("meta").type == "meta"
    assert device(device("cuda:1")) == device(device=device("cuda:1")) == device("cuda:1")
    assert pickle.loads(pickle.dumps(device("cuda:1"))) == device("cuda:1") == copy.deepcopy(device("cuda:1"))
    with device("cpu") as entered:
        assert entered == device("cpu")
    assert amp.zeros(1).device == device("cpu")
    assert amp.zeros(1, device=device("meta")).device == device("meta")


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        (("foo",), RuntimeError, "Expected one of cpu, cuda, .*at start of device string: foo"),
        (("CUDA",), RuntimeError, "Expected one of"),
        (("",), RuntimeError, "must not be empty"),
        (("cuda:x",), RuntimeError, "Invalid device string: 'cuda:x'"),
        (("cuda:",), RuntimeError, "Invalid device string"),
        (("cuda:-1",), RuntimeError, "Invalid device string"),
        (("cuda:01",), RuntimeError, "Invalid device string"),
        (("cuda:0:1",), RuntimeError, "Invalid device string"),
        (("cuda:1000",), RuntimeError, "Invalid device string"),
        (("cuda", -1), RuntimeError, "must not be negative"),
        (("cuda:0", 0), RuntimeError, "must not include an index"),
        ((1.5,), TypeError, "device"),
        ((), TypeError, "device"),
        ((None,), TypeError, "device"),
    ],
)
def test_device_errors(arguments, error, text):
    with pytest.raises(error, match=text):
        amp.device(*arguments)


def test_device_arguments():
    for wrong, error in ((3.5, TypeError), ("foo", RuntimeError), (-1, RuntimeError), ("cuda:1", RuntimeError)):
        with pytest.raises(error):
            amp.zeros(1, device=wrong)


def test_size():
    size = amp.Size([2, 3])
    assert repr(size) == "ampnative.Size([2, 3])" and str(amp.Size()) == "ampnative.Size([])"
    assert size == (2, 3) and hash(size) == hash((2, 3)) and isinstance(size, tuple)
    assert size.numel() == 6 and amp.Size().numel() == 1 and amp.Size([2**40, 2**40]).numel() == 2**80
    for made in (size + (1,), (1,) + size, size * 2, 2 * size, size[1:], size[::-1], size[:]):
        assert type(made) is amp.Size
    assert size + (1,) == (2, 3, 1) and (1,) + size == (1, 2, 3) and size * 2 == (2, 3, 2, 3) and size[1:] == (3,)
    assert type(size + ("a",)) is tuple
    assert size[0] == 2 and size[-1] == 3 and list(size) == [2, 3] and 3 in size and size.index(3) == 1
    assert type(pickle.loads(pickle.dumps(size))) is amp.Size and copy.deepcopy(size) == size
    assert amp.Size([True]) == (1,) and amp.Size([amp.tensor(3)]) == (3,) and amp.Size(np.array([4, 5])) == (4, 5)
    assert type(amp.zeros(2, 3).shape) is amp.Size and amp.zeros(2, 3).shape == (2, 3)
    for wrong in (["a"], [1.5], [None]):
        with pytest.raises(TypeError, match=r"takes an iterable of 'int' \(item 0"):
            amp.Size(wrong)
    with pytest.raises(TypeError):
        amp.Size(3)
    with pytest.raises(TypeError):
        size + [1]
    with pytest.raises(IndexError):
        size[2]


def test_generator():
    a, b = amp.Generator(), amp.Generator(device="cpu")
    assert a.initial_seed() == 67280421310721 and a.device == amp.device("cpu")
    assert a.manual_seed(5) is a and a.initial_seed() == 5
    b.manual_seed(5)
    first = amp.rand(20, generator=a)
    assert (first == amp.rand(20, generator=b)).all()
    state = a.get_state()
    assert state.dtype is amp.uint8 and state.ndim == 1
    second = amp.randn(5, generator=a)
    a.set_state(state)
    assert (second == amp.randn(5, generator=a)).all()
    a.set_state(state)
    assert (amp.rand(3, generator=a.clone_state()) == amp.rand(3, generator=a)).all()
    assert a.seed() == a.initial_seed()


def test_generator_seeds():
    g = amp.Generator()
    for seed, stored in ((-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (-(2**63), 2**63), (np.int64(7), 7)):
        assert g.manual_seed(seed).initial_seed() == stored
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            g.manual_seed(seed)
    for seed in (1.0, "a", None):
        with pytest.raises(RuntimeError, match="manual_seed expected a long"):
            g.manual_seed(seed)
    before = g.get_state()
    with pytest.raises(TypeError):
        g.set_state(3)
    with pytest.raises(TypeError, match="uint8"):
        g.set_state(amp.zeros(3))
    with pytest.raises(RuntimeError, match="state"):
        g.set_state(amp.zeros(3, dtype=amp.uint8))
    assert (g.get_state() == before).all()
    with pytest.raises(TypeError, match="generator"):
        amp.rand(2, generator=3)
    with pytest.raises(RuntimeError):
        amp.Generator("meta")


def test_default_generator():
    amp.manual_seed(3)
    assert amp.default_generator.initial_seed() == 3
    state = amp.default_generator.get_state()
    first = amp.rand(4)
    amp.default_generator.set_state(state)
    assert (first == amp.rand(4)).all()


# bits, eps, max, smallest normal, resolution
FLOATS = {
    "float8_e5m2": (8, 0.25, 57344.0, 2.0**-14, 1.0),
    "float8_e4m3fn": (8, 0.125, 448.0, 2.0**-6, 1.0),
    "float16": (16, 2.0**-10, 65504.0, 2.0**-14, 1e-3),
    "bfloat16": (16, 2.0**-7, (2 - 2.0**-7) * 2.0**127, 2.0**-126, 1e-2),
    "float32": (32, 2.0**-23, (2 - 2.0**-23) * 2.0**127, 2.0**-126, 1e-6),
    "float64": (64, 2.0**-52, (2 - 2.0**-52) * 2.0**1023, 2.0**-1022, 1e-15),
}


@pytest.mark.parametrize("name", FLOATS)
def test_finfo(name):
    bits, eps, largest, tiny, resolution = FLOATS[name]
    info = amp.finfo(getattr(amp, name))
    assert (info.bits, info.eps, info.max, info.min) == (bits, eps, largest, -largest)
    assert info.tiny == info.smallest_normal == tiny and info.dtype == name
    assert info.resolution == pytest.approx(resolution, rel=1e-15)
    assert info == amp.finfo(getattr(amp, name)) != amp.finfo(amp.float64 if bits < 64 else amp.float32)


def test_finfo_details():
    assert repr(amp.finfo(amp.float16)) == (
        "finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, smallest_normal=6.10352e-05, "
        "tiny=6.10352e-05, dtype=float16)"
    )
    assert amp.finfo().dtype == "float32" and amp.finfo(amp.complex128).dtype == "float64"
    with pytest.raises(TypeError, match="requires a floating point input type.*iinfo"):
        amp.finfo(amp.int8)
    with pytest.raises(TypeError, match="argument 'type'"):
        amp.finfo("float32")


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_iinfo(name):
    info, reference = amp.iinfo(getattr(amp, name)), np.iinfo(name)
    assert (info.bits, info.min, info.max, info.dtype) == (reference.bits, reference.min, reference.max, name)
    assert repr(info) == f"iinfo(min={info.min}, max={info.max}, dtype={name})"


def test_iinfo_errors():
    with pytest.raises(TypeError, match="requires an integer input type.*finfo"):
        amp.iinfo(amp.float32)
    with pytest.raises(TypeError, match="bool"):
        amp.iinfo(amp.bool)
    with pytest.raises(TypeError, match="missing"):
        amp.iinfo()


def test_generators_are_copied_with_their_state():
    g = amp.Generator().manual_seed(3)
    amp.rand(5, generator=g)
    copies = [pickle.loads(pickle.dumps(g)), copy.deepcopy(g), copy.copy(g)]
    want = amp.rand(4, generator=g).tolist()
    assert [amp.rand(4, generator=c).tolist() for c in copies] == [want] * 3
