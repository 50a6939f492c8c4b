"""What is written may be an input, but not share memory with one otherwise: PyTorch refuses that where it sees it at once, as here.

With AMPNATIVE_TEST_MODULE=torch PyTorch must agree.
"""

import numpy as np
import pytest
from golden_tools import torch

BINARY = """
    add sub mul div pow atan2 remainder fmod floor_divide copysign hypot nextafter heaviside xlogy eq ne lt le gt ge logical_and
    logical_or logical_xor copy
"""


def numbers(n=24):
    return torch.arange(float(n))


def square():
    return numbers(16).view(4, 4)


def refused(call, *tensors):
    """The call raises, and writes nothing."""
    before = [t.tolist() for t in tensors]
    with pytest.raises(RuntimeError, match="unsupported operation.*single memory location"):
        call()
    assert [t.tolist() for t in tensors] == before


@pytest.mark.parametrize("name", BINARY.split())
def test_a_shifted_window_cannot_be_the_second_operand_in_place(name):
    z = numbers()
    refused(lambda: getattr(z[1:5], name + "_")(z[0:4]), z)
    refused(lambda: getattr(z[0:4], name + "_")(z[1:5]), z)
    if name != "copy":
        refused(lambda: getattr(torch, name)(z[0:4], torch.ones(4), out=z[1:5]), z)
    y = torch.ones(24)
    for a, b in ((y[0:4], y[4:8]), (y[2:6], y[2:6]), (y, y)):
        getattr(a, name + "_")(b)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: torch.exp(z[0:4], out=z[1:5]),
        lambda z: torch.clamp(z[0:4], 0, 1, out=z[1:5]),
        lambda z: z[1:5].clamp_(z[0:4], z[1:5]),
        lambda z: z[1:5].clamp_(max=z[0:4]),
        lambda z: torch.where(z[0:4] > 0, z[0:4], torch.ones(4), out=z[1:5]),
        lambda z: z[1:5].addcmul_(z[0:4], torch.ones(4)),
        lambda z: z[1:5].lerp_(torch.ones(4), z[0:4]),
        lambda z: torch.add(z[0:4], torch.ones(4, dtype=torch.int32), out=z[1:5]),
        lambda z: torch.div(z[0:4], 2, rounding_mode="floor", out=z[1:5]),
        lambda z: torch.angle(z[0:4], out=z[1:5]),
        lambda z: torch.cumsum(z[0:4], 0, out=z[1:5]),
        lambda z: torch.sort(z[0:4], out=(z[1:5], torch.empty(0, dtype=torch.int64))),
        lambda z: torch.cat([z[0:2], torch.ones(2)], out=z[0:4]),
        lambda z: torch.gather(z[0:4], 0, torch.tensor([0, 1, 2, 3]), out=z[1:5]),
        lambda z: z.index_add_(0, torch.tensor([1, 2]), z[0:2]),
        lambda z: z.scatter_(0, torch.tensor([1, 2]), z[0:2]),
        lambda z: z.__setitem__(slice(1, 5), z[0:4]),
        lambda z: z.__setitem__([1, 2, 3], z[0:3]),
        lambda z: z.data[1:5].add_(z.detach()[0:4]),
        lambda z: z[:4].add_(z.view(torch.int32)[1:5]),
        lambda z: z[0:4].mul_(z[0]),  # which would be another number after the first product
        lambda z: z[0:4].add_(z[0:1]),
        lambda z: z[0:1].add_(z[0]),
        lambda z: z.view(1, 24).add_(z),
        lambda z: z.view(4, 6).div_(z.view(4, 6)[0]),
        lambda z: z[:16].view(4, 4).add_(z[:16].view(4, 4).t()),
        lambda z: z[:16].view(4, 4).copy_(z[:16].view(4, 4).t()),
        lambda z: torch.add(z[:16].view(4, 4).t(), 1, out=z[:16].view(4, 4)),
        lambda z: torch.view_as_complex(z.view(12, 2))[1:3].mul_(torch.view_as_complex(z.view(12, 2))[0:2]),
    ],
)
def test_other_ways_to_overlap_in_part(call):
    z = numbers()
    refused(lambda: call(z), z)


def test_gradients_do_not_matter():
    z = (numbers().requires_grad_() * 1)
    refused(lambda: z[1:5].add_(z[0:4]), z)
    with torch.no_grad():
        refused(lambda: z[1:5].mul_(z[0:4]), z)


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda s: s.add_(s), 2 * np.arange(16.0).reshape(4, 4)),
        (lambda s: s.t().add_(s.t()), 2 * np.arange(16.0).reshape(4, 4)),
        (lambda s: s.copy_(s), np.arange(16.0).reshape(4, 4)),
        (lambda s: torch.add(s, s, out=s), 2 * np.arange(16.0).reshape(4, 4)),
        (lambda s: s[0].add_(s[1]), [[4, 6, 8, 10], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
        (lambda s: s[:, 0].add_(s[:, 1]), [[1, 1, 2, 3], [9, 5, 6, 7], [17, 9, 10, 11], [25, 13, 14, 15]]),
        (lambda s: s.fill_(s[1, 1]), np.full((4, 4), 5.0)),
        (lambda s: s.masked_fill_(s > 1, s[0, 1]), [[0, 1, 1, 1], [1] * 4, [1] * 4, [1] * 4]),
        (lambda s: s.__setitem__(slice(None), s[1]), [[4, 5, 6, 7]] * 4),
        (lambda s: s.__setitem__((slice(1, 3), slice(None)), s[1:2]), [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7], [12, 13, 14, 15]]),
        (lambda s: s.__setitem__(slice(0, 4), s[0, 3]), np.full((4, 4), 3.0)),
        (lambda s: s.__setitem__(s > 3, s[0, 3]), [[0, 1, 2, 3], [3] * 4, [3] * 4, [3] * 4]),
        (lambda s: s.div_(s.max()), np.arange(16.0, dtype=np.float32).reshape(4, 4) / np.float32(15)),
        (lambda s: s.view(torch.int32).bitwise_and_(s.view(torch.int32)), np.arange(16.0).reshape(4, 4)),
    ],
)
def test_the_very_elements_and_apart_ones_pass(call, expected):
    s = square()
    call(s)
    assert s.tolist() == np.asarray(expected).tolist()


def test_two_arrays_of_one_memory_are_two_storages():
    memory = np.arange(6.0, dtype=np.float32)
    torch.from_numpy(memory[1:5]).add_(torch.from_numpy(memory[4:6])[:1])
    z = torch.from_numpy(memory)
    refused(lambda: z[1:5].add_(z[0:4]), z)


def places(dtype=torch.float32):
    return torch.arange(3).to(dtype), torch.arange(3)


SELF_READING = {
    "gather": lambda x, i: torch.gather(x, 0, i, out=x),
    "index_select": lambda x, i: torch.index_select(x, 0, i, out=x),
    "index_add": lambda x, i: x.index_add_(0, i, x),
    "index_add_out": lambda x, i: torch.index_add(x, 0, i, x, out=x),
    "index_copy": lambda x, i: x.index_copy_(0, i, x),
    "scatter": lambda x, i: x.scatter_(0, i, x),
    "scatter_add": lambda x, i: x.scatter_add_(0, i, x),
    "scatter_reduce": lambda x, i: x.scatter_reduce_(0, i, x, "sum"),
}
SELF_PLACING = {
    "gather": lambda i: torch.gather(i, 0, i, out=i),
    "index_select": lambda i: torch.index_select(i.clone(), 0, i, out=i),
    "index_add": lambda i: i.index_add_(0, i, i.clone()),
    "index_copy": lambda i: i.index_copy_(0, i, i.clone()),
    "index_fill": lambda i: i.index_fill_(0, i, 1),
    "scatter": lambda i: i.scatter_(0, i, i.clone()),
    "scatter_value": lambda i: i.scatter_(0, i, 1),
    "scatter_add": lambda i: i.scatter_add_(0, i, i.clone()),
    "scatter_reduce": lambda i: i.scatter_reduce_(0, i, i.clone(), "amax"),
}


@pytest.mark.parametrize("name", SELF_READING)
def test_indexed_writes_from_what_they_write_to(name):
    x, i = places()
    for target in (x, x.reshape(3), x.view(3)):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            SELF_READING[name](target, i)
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", SELF_PLACING)
def test_indexed_writes_into_their_own_index(name):
    _, i = places()
    with pytest.raises(RuntimeError, match="unsupported operation"):
        SELF_PLACING[name](i)
    assert i.tolist() == [0, 1, 2]


def test_indexed_writes_into_what_is_added_to():
    x, i = places()
    for call in (torch.index_add, torch.index_copy, torch.scatter_add, torch.scatter):
        y = x.clone()
        assert call(y, 0, i, torch.ones(3), out=y) is y
    y = x.clone()
    y.index_fill_(0, i[:1], y[2])  # the value is read before
    assert y.tolist() == [2, 1, 2]
