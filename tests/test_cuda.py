"""The device "cuda" without a GPU: unavailable until emulation is asked for, and how the emulation presents itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ampnative as torch
from ampnative import cuda

ROOT = str(Path(torch.__file__).resolve().parent.parent)


@pytest.fixture
def off():
    with cuda.emulate(False):
        yield


@pytest.fixture
def on():
    with cuda.emulate():
        yield


def test_unavailable_as_in_pytorch(off):
    assert not cuda.is_available() and cuda.device_count() == 0 and not cuda.is_initialized()
    assert not cuda.is_emulated() and "emulate()" in cuda.why_unavailable()
    assert cuda.empty_cache() is None and cuda.manual_seed(1) is None and cuda.manual_seed_all(1) is None
    assert cuda.is_bf16_supported() is False and cuda.set_device(-1) is None
    cuda.Event(enable_timing=True)
    with cuda.device(-1), cuda.stream(None):
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.zeros(2, device="cuda"),
        lambda: torch.zeros(2).cuda(),
        cuda.synchronize,
        cuda.init,
        cuda.get_device_name,
        cuda.current_device,
        cuda.get_device_capability,
        cuda.reset_peak_memory_stats,
        cuda.Stream,
        cuda.current_stream,
        lambda: cuda.set_device(0),
        lambda: cuda.get_device_properties(0),
        lambda: cuda.Event().record(),
        lambda: cuda.device(0).__enter__(),
    ],
)
def test_unavailable_raises_with_the_cure(off, call):
    with pytest.raises(RuntimeError, match=r"emulate\(\)"):
        call()


def test_unavailable_seed_leaves_the_cpu_generator_alone(off):
    torch.manual_seed(3)
    first = torch.rand(2).tolist()
    torch.manual_seed(3)
    cuda.manual_seed_all(99)
    assert torch.rand(2).tolist() == first


def test_emulated(on):
    assert cuda.is_available() and cuda.is_emulated() and cuda.device_count() == 1 and cuda.why_unavailable() == ""
    assert "emulated on the CPU" in cuda.get_device_name() and cuda.get_device_name("cuda:0") == cuda.get_device_name(0)
    assert cuda.current_device() == 0 and cuda.get_device_capability() >= (8, 0) and cuda.is_bf16_supported()
    assert cuda.get_device_properties(torch.device("cuda")).total_memory > 1 << 28
    cuda.set_device("cuda:0")
    cuda.synchronize()
    with cuda.device(0), cuda.stream(cuda.Stream()):
        assert torch.zeros(2, device="cuda").device == torch.device("cuda:0")
    with pytest.raises(AssertionError, match="Invalid device id"):
        cuda.set_device(1)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        cuda.get_device_name("cpu")


def test_memory_statistics_count_this_device_only(on):
    before_cpu, before = torch.cpu.memory_allocated(), cuda.memory_allocated()
    cuda.reset_peak_memory_stats()
    t = torch.zeros(1 << 18, device="cuda")
    assert cuda.memory_allocated() - before >= 1 << 20 and torch.cpu.memory_allocated() == before_cpu
    u = torch.zeros(1 << 18)
    assert torch.cpu.memory_allocated() - before_cpu >= 1 << 20
    del t, u
    assert cuda.memory_allocated() == before and cuda.max_memory_allocated() - before >= 1 << 20
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == cuda.memory_allocated()
    torch.cpu.reset_peak_memory_stats()
    assert torch.cpu.max_memory_allocated() == torch.cpu.memory_allocated() and torch.cpu.empty_cache() is None


def test_events(on):
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    cuda.current_stream().record_event(end)
    end.synchronize()
    assert start.query() and 0 <= start.elapsed_time(end) < 1000
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(cuda.Event())


def test_emulated_seed(on):
    cuda.manual_seed_all(5)
    first = torch.rand(3, device="cuda").tolist()
    cuda.manual_seed(5)
    assert torch.rand(3, device="cuda").tolist() == first


def test_emulate_nests_and_can_be_undone(off):
    with cuda.emulate():
        with cuda.emulate(False):
            assert not cuda.is_available()
        assert cuda.is_available()
    assert not cuda.is_available()
    cuda.emulate()
    assert cuda.is_available()
    cuda.emulate(False)
    assert not cuda.is_available()
    with pytest.raises(TypeError):
        cuda.emulate(1)


@pytest.mark.parametrize(("value", "expected"), [("1", "True"), ("0", "False"), ("", "False")])
def test_environment_variable(value, expected):
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]),
        "AMPNATIVE_EMULATE_CUDA": value,
    }
    program = """
from ampnative import cuda
assert cuda.memory_allocated() == cuda.max_memory_allocated() == cuda.memory_reserved() == 0
print(cuda.is_available())
"""
    assert subprocess.check_output([sys.executable, "-c", program], env=env, text=True).strip() == expected


def test_backends_and_cpu():
    assert torch.backends.cuda.is_built() is False and torch.backends.cudnn.is_available() is False
    assert torch.backends.cudnn.version() is None and torch.backends.cudnn.enabled is True
    assert torch.cpu.is_available() and torch.cpu.device_count() == 1 and torch.cpu.synchronize() is None


def test_events_without_cuda_name_the_cure():
    for call in [lambda: torch.cuda.Event(enable_timing=True).record(), torch.cuda.synchronize, torch.cuda.get_device_name]:
        with pytest.raises(RuntimeError, match=r"cuda\.emulate\(\).*ampnative run --emulate-cuda"):
            call()
