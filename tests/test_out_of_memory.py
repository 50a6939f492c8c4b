"""Memory that is not there: one exception, which scripts that look for the largest batch know under each of its names."""

import pickle

import pytest

import ampnative as torch

FAR = 2**46  # elements: in four bytes each, more than a process can address
CALLS = {
    "empty": lambda device: torch.empty(FAR, device=device),
    "zeros": lambda device: torch.zeros(FAR, device=device),
    "randn": lambda device: torch.randn(FAR, device=device),
    "an op": lambda device: torch.ones(1, device=device).expand(FAR) + 1,
    "a copy": lambda device: torch.ones(1, device=device).expand(FAR).contiguous(),
    "a product": lambda device: torch.ones(FAR // 2**22, 1, device=device) @ torch.ones(1, 2**22, device=device),
    "a layer": lambda device: torch.nn.Linear(2**23, 2**23, device=device),
    "cat": lambda device: torch.cat([torch.ones(1, device=device).expand(FAR)] * 2),
}


def test_the_class_has_each_name_and_base():
    error = torch.OutOfMemoryError
    assert error is torch.cuda.OutOfMemoryError and issubclass(error, RuntimeError) and issubclass(error, MemoryError)
    assert (error.__module__, error.__qualname__) == ("ampnative", "OutOfMemoryError")
    copy = pickle.loads(pickle.dumps(error("text")))
    assert type(copy) is error and str(copy) == "text"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_tensors_that_do_not_fit_raise_it_with_their_size(device, call):
    with torch.cuda.emulate(), pytest.raises(torch.OutOfMemoryError, match=r"memory.* [0-9]{14,} bytes .*Smaller batches") as caught:
        CALLS[call](device)
    assert len(caught.value.args) == 1  # retrying loops look at the first argument
    assert caught.value.args[0].startswith("CUDA out of memory." if device == "cuda" else "DefaultCPUAllocator: can't allocate memory")


def test_a_search_for_the_largest_batch_ends():
    size, x = FAR, torch.ones(1)
    while True:
        try:
            batch = x.expand(size, 3) * 2
            break
        except RuntimeError:
            size //= 2**40
    assert batch.shape == (64, 3)


def test_what_failed_leaves_the_rest_as_it_was():
    before = torch.cpu.memory_allocated()
    kept = torch.ones(3)
    out = torch.ones(3)
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(1).expand(FAR).sort()
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(UserWarning, match="resized"):
        torch.mul(kept[:1].expand(FAR), 2, out=out)
    assert out.tolist() == kept.tolist() == [1, 1, 1]
    assert torch.cpu.memory_allocated() - before < 1 << 16
