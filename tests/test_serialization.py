"""Saving and loading: what comes back, what NumPy reads, what is refused, and what a crash leaves behind."""

import collections
import io
import json
import math
import os
import pickle
import random
import signal
import stat
import struct
import subprocess
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch
from ampnative import serialization
from ampnative.serialization import (
    load,
    load_checkpoint,
    load_safetensors,
    save,
    save_checkpoint,
    save_safetensors,
)

INF, NAN = float("inf"), float("nan")
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def there_and_back(obj, **kwargs):
    file = io.BytesIO()
    save(obj, file)
    file.seek(0)
    return load(file, **kwargs)


def raw(t):
    """The bytes of a tensor's or array's elements."""
    a = t.detach().numpy() if isinstance(t, torch.Tensor) else t
    return a.tobytes()


# ---- round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e5m2", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 4), (2, 1, 3)])
def test_tensor_of_every_dtype(dtype, shape):
    count = math.prod(shape)
    numpy_dtype = getattr(torch, dtype).dtype
    array = np.arange(count * numpy_dtype.itemsize, dtype=np.uint8).view(numpy_dtype) if dtype != "bool" else None
    array = (np.arange(count) % 2 == 0 if array is None else array)[:count].reshape(shape)
    t = torch.from_numpy(array.copy())
    back = there_and_back({"t": t})["t"]
    assert back.dtype is t.dtype and back.shape == t.shape and raw(back) == raw(t) and back.device == t.device


def test_special_values_keep_their_bits():
    bits = np.array([0x7FC0, 0xFFC1, 0x7F80, 0xFF80, 0x8000, 0x0001, 0x7F81], np.uint16)
    t = torch.from_numpy(bits.view(ml_dtypes.bfloat16))
    assert there_and_back(t).numpy().view(np.uint16).tolist() == bits.tolist()


def test_structure_comes_back_exactly():
    obj = {
        "none": None,
        "bools": [True, False],
        "ints": (0, -1, 10**30),
        "floats": [0.1, -0.0, INF, -INF, 1e308, 5e-324],
        "complex": 1 - 2j,
        "text": "ü\n\0\ud800",
        "bytes": b"\0\xff",
        "nested": {"a": {"b": [({},)]}},
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
        "sets": [{1, 2}, frozenset({"x"})],
        3: "int key",
        2.5: "float key",
        None: "none key",
        True: "bool key",
        ("t", 1): "tuple key",
        "size": torch.Size([1, 2]),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda:0"),
    }
    back = there_and_back(obj)
    assert back == obj and list(back) == list(obj)
    assert type(back["ordered"]) is collections.OrderedDict and type(back["size"]) is torch.Size
    assert math.copysign(1, back["floats"][1]) == -1 and type(back["ints"]) is tuple and type(back["bools"][0]) is bool
    assert back["dtype"] is torch.bfloat16
    assert math.isnan(there_and_back(NAN))


@pytest.mark.parametrize(
    "value",
    [np.float32(0.1), np.float64(NAN), np.int8(-3), np.bool_(True), np.complex64(1 + 2j), ml_dtypes.bfloat16(1.5)],
    ids=lambda v: v.dtype.name,
)
def test_numpy_scalars(value):
    back = there_and_back([value])[0]
    assert type(back) is type(value) and raw(np.asarray(back)) == raw(np.asarray(value))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4)[::-1, ::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["ab", "c"]),
        np.array([b"ab", b"c"]),
        np.array(["2020-01-02"], "M8[D]"),
        np.arange(3, dtype=">i4"),
        np.array(5.0),
        np.empty((0, 3)),
        np.array([1.5, -0.0], ml_dtypes.bfloat16),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays(array):
    back = there_and_back({"a": array})["a"]
    assert isinstance(back, np.ndarray) and back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


def test_views_are_saved_as_they_look():
    base = torch.arange(12).reshape(3, 4)
    back = there_and_back({"t": base.t(), "column": base[:, 1], "row": base[1]})
    assert back["t"].tolist() == base.t().tolist() and back["column"].tolist() == [1, 5, 9]
    assert back["row"].tolist() == [4, 5, 6, 7]


def test_sharing_and_requires_grad():
    a = torch.arange(3.0).requires_grad_()
    back = there_and_back({"a": a, "same": a, "alias": a.detach(), "other": a.detach().clone()})
    assert back["a"] is back["same"] and back["a"].requires_grad and back["a"].is_leaf
    assert not back["alias"].requires_grad
    back["alias"][0] = 9.0
    assert back["a"].tolist() == [9.0, 1.0, 2.0] and back["other"].tolist() == [0.0, 1.0, 2.0]


def test_parameters_come_back_as_such():
    model = torch.nn.Linear(2, 3)
    back = there_and_back(list(model.parameters()))
    assert all(type(p) is torch.nn.Parameter and p.requires_grad for p in back)


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner)
            | st.lists(inner).map(tuple)
        ),
        max_leaves=20,
    )
)
def test_any_structure(obj):
    assert there_and_back(obj) == obj


@given(st.lists(st.text(), unique=True, max_size=8))
def test_any_key_makes_a_distinct_member(keys):
    obj = {key: np.array([index]) for index, key in enumerate(keys)}
    assert {k: int(v[0]) for k, v in there_and_back(obj).items()} == {k: i for i, k in enumerate(keys)}


def test_member_names_cannot_leave_a_folder(tmp_path):
    save({"../../x": np.ones(1), "/etc": np.ones(1), "a\\b": np.ones(1), "..": {"..": np.ones(1)}}, tmp_path / "f")
    for name in zipfile.ZipFile(tmp_path / "f").namelist():
        assert not name.startswith("/") and ".." not in name.split("/") and "\\" not in name


def test_numpy_reads_it(tmp_path):
    save({"model": {"w.1": torch.full((2, 2), 1.5), "h": torch.ones(2, dtype=torch.bfloat16)}, "n": 1}, tmp_path / "f")
    with np.load(tmp_path / "f") as file:
        assert set(file.files) == {"index.json", "model/w.1", "model/h"}
        assert file["model/w.1"].tolist() == [[1.5, 1.5], [1.5, 1.5]]
        assert file["model/h"].dtype == np.uint16 and file["model/h"].tolist() == [0x3F80, 0x3F80]
        assert json.loads(file["index.json"])["members"]["model/h"] == ["bfloat16", [2]]


def test_equal_objects_make_equal_files():
    one, two = io.BytesIO(), io.BytesIO()
    for file in (one, two):
        save({"a": torch.ones(3), "b": [1, 2.0]}, file)
    assert one.getvalue() == two.getvalue()


def test_files_and_paths(tmp_path):
    path = tmp_path / "f.amp"
    save([1], str(path))
    save([1], os.fsencode(path))
    save([1], path)
    assert load(path) == load(str(path), weights_only=True) == load(path, weights_only=False) == [1]
    with open(path, "rb") as file:
        assert load(file) == [1]
    with pytest.raises(TypeError):
        save([1], 3)
    with pytest.raises(TypeError):
        load(3)


# ---- map_location ----------------------------------------------------------------------------------------------------


def test_map_location():
    with torch.cuda.emulate():
        file = io.BytesIO()
        save({"c": torch.ones(2, device="cuda"), "h": torch.ones(2)}, file)

        def where(location):
            file.seek(0)
            return {k: v.device.type for k, v in load(file, location).items()}

        assert where(None) == {"c": "cuda", "h": "cpu"}
        assert where("cpu") == where(torch.device("cpu")) == where({"cuda:0": "cpu"}) == {"c": "cpu", "h": "cpu"}
        assert where("cuda") == where("cuda:0") == {"c": "cuda", "h": "cuda"}
        assert where(lambda t, location: t if location == "cuda:0" else None) == {"c": "cpu", "h": "cpu"}
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="map_location='cpu'"):
            where(None)
        assert where("cpu") == {"c": "cpu", "h": "cpu"}


# ---- what save refuses -----------------------------------------------------------------------------------------------


class Odd(dict):
    pass


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (object(), "an object"),
        ({"a": [0, object()]}, r"\['a'\]\['1'\]"),
        (collections.defaultdict(lambda: 0), r"makes its values with .*dict\(\.\.\.\)"),
        ({"a": collections.defaultdict(collections.Counter)}, r"\['a'\]"),
        (Odd(), r"dict\(\.\.\.\)"),
        (np.array([object()]), "dtype object"),
        (np.zeros(2, "i4,f4"), "dtype"),
        (len, "builtin"),
    ],
)
def test_types_that_cannot_be_saved(obj, words, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"before")
    with pytest.raises(TypeError, match=words):
        save(obj, path)
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["f"]


def test_modules_are_told_to_use_state_dict():
    with pytest.raises(TypeError, match=r"state_dict\(\)"):
        save(torch.nn.Linear(1, 1), io.BytesIO())


def test_cycles_and_depth():
    ring = []
    ring.append(ring)
    with pytest.raises(ValueError, match="contains itself"):
        save(ring, io.BytesIO())
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError, match="deeper"):
        save(deep, io.BytesIO())


# ---- all or nothing --------------------------------------------------------------------------------------------------


def test_error_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    save([1], path)
    for stage in ("_write_npy", "os.fsync", "os.replace"):
        with monkeypatch.context() as patch:

            def fail(*args):
                raise OSError(28, "No space left on device")

            if stage == "_write_npy":
                patch.setattr(serialization, "_write_npy", fail)
            else:
                patch.setattr(os, stage[3:], fail)
            with pytest.raises(OSError, match="No space"):
                save([torch.ones(3)], path)
        assert load(path) == [1] and os.listdir(tmp_path) == ["f"]


def test_interrupt_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    save([1], path)
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        save([2], path)
    assert load(path) == [1] and os.listdir(tmp_path) == ["f"]


def test_kill_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "f"
    save({"old": torch.ones(4)}, path)
    program = """
import os, signal, sys
import ampnative as torch
from ampnative import serialization
inner = serialization._write_npy
def die(member, array):
    inner(member, array)
    os.kill(os.getpid(), signal.SIGKILL)
serialization._write_npy = die
torch.save({"new": torch.zeros(100000)}, sys.argv[1])
"""
    root = os.path.dirname(os.path.dirname(serialization.__file__))
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == -signal.SIGKILL
    assert load(path)["old"].tolist() == [1.0] * 4


def test_order_of_sync_and_replace(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))[1])
    save([1], tmp_path / "f")
    assert calls == ["fsync", "replace", "fsync"]  # the file, its name, the folder


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "f"
    target.write_bytes(b"x")
    (tmp_path / "link").symlink_to(target)
    save([1], tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and load(target) == [1]


def test_a_ring_of_links_is_refused(tmp_path):
    (tmp_path / "ring").symlink_to("ring")
    with pytest.raises(OSError, match="symbolic links"):
        save([1], tmp_path / "ring")
    assert (tmp_path / "ring").is_symlink()


def test_permissions_stay(tmp_path):
    path = tmp_path / "f"
    save([1], path)
    for mode in (0o600, 0o664):
        path.chmod(mode)
        save([2], path)
        assert path.stat().st_mode & 0o777 == mode


def test_pipes_and_folders_are_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    save([torch.ones(3), "x"], pipe)
    data, _ = reader.communicate()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert np.load(io.BytesIO(data))["0"].tolist() == [1.0] * 3
    for folder in (tmp_path, ""):
        with pytest.raises(OSError, match="cannot save"):
            save([1], folder)
    assert os.listdir(tmp_path) == ["pipe"]


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        save([1], tmp_path / "none" / "f")


# ---- what load refuses -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved():
    file = io.BytesIO()
    save(
        {"a": torch.arange(40.0), "b": [1, 2.5, "x", {"k": torch.ones(3, dtype=torch.bfloat16)}], "c": np.arange(9)},
        file,
    )
    return file.getvalue()


def outcome(data):
    """What the file holds, as comparable data, or None if it was refused properly."""
    try:
        obj = load(io.BytesIO(data))
    except RuntimeError as error:
        assert "cannot load" in str(error)
        return None
    return [raw(obj["a"]), obj["b"][:3], raw(obj["b"][3]["k"]), raw(obj["c"])]


def test_every_truncation_is_refused(saved):
    assert outcome(saved) is not None
    assert all(outcome(saved[:n]) is None for n in range(len(saved)))


def test_longer_files_are_refused(saved):
    for extra in (b"\0", b"x" * 100, saved):
        assert outcome(saved + extra) is None
        assert outcome(extra + saved) is None


def test_no_flipped_bit_changes_the_data(saved):
    good = outcome(saved)
    random.seed(7)
    refused = 0
    for _ in range(1500):
        data = bytearray(saved)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        seen = outcome(bytes(data))
        assert seen is None or seen == good  # unread fields such as dates may differ
        refused += seen is None
    assert refused > 1000


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"hello, this is text", "no ampnative file"),
        (pickle.dumps({"a": 1}), "pickle.*safetensors"),
        (pickle.dumps({"a": 1}, protocol=0), "pickle.*safetensors"),
        (b"\x93NUMPY\x01\0", "numpy.load"),
        (struct.pack("<Q", 8) + b'{"a":{}}' + b"0" * 50, "load_safetensors"),
    ],
)
def test_other_formats_name_the_cure(data, words):
    with pytest.raises(RuntimeError, match=words):
        load(io.BytesIO(data))


def make_zip(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    file.seek(0)
    return file


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def index(tree, members=None, **changes):
    return json.dumps({"format": "ampnative", "version": 1, "tree": tree, "members": members or {}, **changes})


class Boom:
    def __reduce__(self):
        return (os._exit, (99,))


def test_pytorch_files_are_refused_without_running_them():
    with pytest.raises(RuntimeError, match="pickle.*safetensors"):
        load(make_zip({"archive/data.pkl": pickle.dumps(Boom()), "archive/data/0": b"0" * 8}))


def test_npz_is_told_to_numpy():
    with pytest.raises(RuntimeError, match="numpy.load"):
        load(make_zip({"a.npy": npy(np.ones(2))}))


def test_object_arrays_are_never_unpickled():
    file = io.BytesIO()
    np.save(file, np.array([Boom()], dtype=object), allow_pickle=True)
    members = {"a": ["|O", [1]]}
    with pytest.raises(RuntimeError, match="describes"):
        load(make_zip({"index.json": index({"array": "a"}, members), "a.npy": file.getvalue()}))
    members = {"a": ["<f8", [1]]}
    with pytest.raises(RuntimeError):
        load(make_zip({"index.json": index({"array": "a"}, members), "a.npy": file.getvalue()}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "JSON"),
        ("[]", "not ampnative's"),
        (index(None, version=2), "version 2.*newer"),
        (index(None, version="1"), "version"),
        (index(None, format="other"), "not ampnative's"),
        (index(None, "no"), "incomplete"),
        ('{"format": "ampnative", "version": 1, "members": {}}', "incomplete"),
        (index({"no_such_kind": 1}), "bad entry"),
        (index({"tensor": {"member": "x"}}), "bad entry"),
        (index({"dtype": "Tensor"}), "bad entry"),
        (index({"dtype": "__class__"}), "bad entry"),
        (index({"float": "1.0"}), "bad entry"),
        (index({"dict": [[[], 1]]}), "bad entry"),
        (index({"set": [[]]}), "bad entry"),
        (index({"a": 1, "b": 2}), "bad entry"),
        (index({}), "bad entry"),
        (index(None).replace("null", "NaN"), "JSON"),
        ("[" * 100000, "JSON|bad"),
        (index(None).replace("null", "[" * 100000 + "]" * 100000), "JSON|bad"),
        (index({"scalar": ["int8", 1000]}), "bad entry"),
        (index({"scalar": ["O", 1]}), "bad entry"),
        (index({"array": "missing"}), "bad entry"),
        (index(None, {"x": ["<f4", [1]]}), "missing or unexpected"),
    ],
)
def test_bad_indexes(text, words):
    with pytest.raises(RuntimeError, match=words):
        load(make_zip({"index.json": text}))


def test_unnamed_members_are_refused():
    with pytest.raises(RuntimeError, match="unexpected"):
        load(make_zip({"index.json": index(None), "extra.npy": npy(np.ones(1))}))


@pytest.mark.parametrize("shape", [[2**40], [2**62, 4], [0, 2**62, 2**62], [1] * 70, [-1], [1.0], ["1"], [True], 3, None])
def test_declared_sizes_are_checked_before_memory_is_taken(shape):
    data = npy(np.ones(1, np.float32))
    with pytest.raises(RuntimeError):
        load(make_zip({"index.json": index({"array": "a"}, {"a": ["<f4", shape]}), "a.npy": data}))


def test_a_member_that_claims_to_be_huge():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**40,)})
    members = {"index.json": index({"array": "a"}, {"a": ["<f4", [2**40]]}), "a.npy": header.getvalue() + b"1234"}
    with pytest.raises(RuntimeError, match="bytes of data"):
        load(make_zip(members))


def test_compressed_members_are_refused():
    with pytest.raises(RuntimeError, match="compressed"):
        load(make_zip({"index.json": index(None)}, zipfile.ZIP_DEFLATED))


def test_random_garbage_never_escapes(saved):
    random.seed(3)
    for _ in range(300):
        start = random.randrange(len(saved))
        data = saved[:start] + random.randbytes(random.randrange(1, 60)) + saved[start + random.randrange(40) :]
        outcome(data)


# ---- versions of layouts ---------------------------------------------------------------------------------------------


def index_of(obj):
    file = io.BytesIO()
    save(obj, file)
    with zipfile.ZipFile(file) as archive:
        return file, json.loads(archive.read("index.json"))


def test_metadata_of_states_survive():
    state = torch.nn.Sequential(torch.nn.BatchNorm1d(2)).state_dict()
    nested = {"before": collections.OrderedDict(a=collections.OrderedDict()), "model": state, "ema": [state]}
    for found in (there_and_back(state), there_and_back(nested)["model"], there_and_back(nested)["ema"][0]):
        assert type(found._metadata) is collections.OrderedDict
        assert list(found._metadata.items()) == [("", {"version": 1}), ("0", {"version": 2})]
    assert not hasattr(there_and_back(nested)["before"], "_metadata") and not hasattr(there_and_back(nested)["before"]["a"], "_metadata")
    inner = collections.OrderedDict(x=1)
    inner._metadata = {"kind": [1, 2.5, None, True, "x"]}
    outer = collections.OrderedDict(inner=inner)
    outer._metadata = collections.OrderedDict(deep=inner)
    found = there_and_back([outer, state])
    assert found[0]._metadata["deep"]._metadata == found[0]["inner"]._metadata == inner._metadata
    assert found[1]._metadata == state._metadata
    inner._metadata = object()
    with pytest.raises(TypeError, match=r"\['inner'\]\['_metadata'\]"):
        save(outer, io.BytesIO())


def test_modules_see_the_version_of_a_loaded_state(tmp_path):
    saved = there_and_back(torch.nn.InstanceNorm1d(2, track_running_stats=True).state_dict())
    keys = torch.nn.InstanceNorm1d(2).load_state_dict(saved, strict=False)
    assert keys.missing_keys == [] and keys.unexpected_keys == ["running_mean", "running_var", "num_batches_tracked"]

    class Layer(torch.nn.Linear):
        _version = 7

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            self.seen = local_metadata.get("version")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    model = torch.nn.Sequential(Layer(1, 1))
    save_checkpoint(tmp_path / "c", model=model)
    load_checkpoint(tmp_path / "c", model=model)
    assert model[0].seen == 7


def test_files_with_and_without_metadata_are_read():
    state = torch.nn.BatchNorm1d(2).state_dict()
    file, index = index_of(state)
    assert index["version"] == 1 and list(index["tree"]) == ["odict"] and list(index["metadata"]) == ["0"]
    assert sorted(np.load(file).files) == sorted(["index.json", *state])
    assert "metadata" not in index_of(dict(state))[1]
    for metadata in (None, [], 1, {"0": {"unknown": 1}}, {"0": {"array": "absent"}}):
        changed = io.BytesIO()
        with zipfile.ZipFile(file) as old, zipfile.ZipFile(changed, "w") as new:
            for name in old.namelist():
                new.writestr(name, json.dumps({**index, "metadata": metadata}) if name == "index.json" else old.read(name))
        with pytest.raises(RuntimeError, match="cannot load"):
            load(changed)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def parts(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    return {"model": model, "optimizer": optimizer, "scaler": scaler, "scheduler": scheduler}


def train(model, optimizer, scaler, scheduler, steps):
    for _ in range(steps):
        loss = model(torch.randn(3, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()


def fingerprint(p):
    return [raw(t) for t in p["model"].parameters()], p["scaler"].state_dict(), p["optimizer"].param_groups[0]["lr"]


def test_resumed_run_is_bit_identical(tmp_path):
    straight = parts()
    train(**straight, steps=3)
    save_checkpoint(tmp_path / "c", **straight, extra={"epoch": 3})
    train(**straight, steps=4)
    resumed = parts(seed=99)
    assert load_checkpoint(tmp_path / "c", **resumed) == {"epoch": 3}
    train(**resumed, steps=4)
    assert fingerprint(resumed) == fingerprint(straight)


def test_checkpoint_without_a_part(tmp_path):
    first = parts()
    save_checkpoint(tmp_path / "c", model=first["model"])
    fresh = parts(seed=5)
    before = fingerprint(fresh)
    with pytest.raises(KeyError, match="optimizer, scaler"):
        load_checkpoint(tmp_path / "c", model=fresh["model"], optimizer=fresh["optimizer"], scaler=fresh["scaler"])
    assert fingerprint(fresh) == before
    load_checkpoint(tmp_path / "c", model=fresh["model"], scaler=fresh["scaler"], strict=False)
    assert fingerprint(fresh)[0] == fingerprint(first)[0] and fresh["scaler"].get_scale() == 64.0


def test_scaler_states_of_disabled_scalers(tmp_path):
    off = torch.amp.GradScaler("cpu", enabled=False)
    on = torch.amp.GradScaler("cpu", init_scale=8.0)
    save_checkpoint(tmp_path / "off", scaler=off)
    save_checkpoint(tmp_path / "on", scaler=on)
    load_checkpoint(tmp_path / "on", scaler=off)
    load_checkpoint(tmp_path / "off", scaler=off)
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        load_checkpoint(tmp_path / "off", scaler=on)
    load_checkpoint(tmp_path / "off", scaler=on, strict=False)
    assert on.get_scale() == 8.0


def test_not_a_checkpoint(tmp_path):
    save([1], tmp_path / "f")
    with pytest.raises(RuntimeError, match="save_checkpoint"):
        load_checkpoint(tmp_path / "f")
    with pytest.raises(TypeError, match="state_dict"):
        save_checkpoint(tmp_path / "f", model=3)
    assert load(tmp_path / "f") == [1]


# ---- safetensors -----------------------------------------------------------------------------------------------------


def test_safetensors_round_trip(tmp_path):
    tensors = {f"x.{d}": torch.ones(2, 3).to(getattr(torch, d)) for d in DTYPES}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), "array": np.arange(3)}
    save_safetensors(tensors, tmp_path / "f", {"made": "by a test"})
    back = load_safetensors(tmp_path / "f")
    assert set(back) == set(tensors)
    for name, t in tensors.items():
        assert tuple(back[name].shape) == tuple(t.shape) and raw(back[name]) == raw(t), name
        assert isinstance(t, np.ndarray) or back[name].dtype is t.dtype
    data = (tmp_path / "f").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0 and header["__metadata__"] == {"made": "by a test"}
    itemsize = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
    for entry in (e for n, e in header.items() if n != "__metadata__"):
        assert entry["data_offsets"][0] % itemsize.get(entry["dtype"], 1) == 0


def safe(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


F4 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def test_safetensors_written_by_hand(tmp_path):
    (tmp_path / "f").write_bytes(safe({"a": F4, "__metadata__": {}}, struct.pack("<f", 1.5)))
    assert load_safetensors(tmp_path / "f")["a"].tolist() == [1.5]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        safe({"a": F4}, b"123"),
        safe({"a": F4}, b"12345"),
        safe({"a": F4}, b"1234", length=2**60),
        safe({"a": F4}, b"1234", length=0),
        safe(b"{", b""),
        safe(b"[]", b""),
        safe(b'{"a": 1}', b""),
        safe(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": 1}', b"1234"),
        safe({"a": F4, "b": F4}, b"1234"),
        safe({"a": {**F4, "data_offsets": [4, 8]}}, b"12345678"),
        safe({"a": {**F4, "data_offsets": [4, 0]}}, b"1234"),
        safe({"a": {**F4, "data_offsets": [-4, 0]}}, b"1234"),
        safe({"a": {**F4, "data_offsets": [0]}}, b"1234"),
        safe({"a": {**F4, "shape": [2]}}, b"1234"),
        safe({"a": {**F4, "shape": [2**62, 2**62]}}, b"1234"),
        safe({"a": {**F4, "shape": [True]}}, b"1234"),
        safe({"a": {**F4, "dtype": "U64"}}, b"1234"),
        safe({"a": {"dtype": "F32"}}, b"1234"),
        safe({"a": {**F4, "data_offsets": [0, 2**50], "shape": [2**48]}}, b"1234"),
    ],
    ids=range(21),
)
def test_bad_safetensors_are_refused(tmp_path, data):
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(RuntimeError, match="cannot load"):
        load_safetensors(tmp_path / "f")


@pytest.mark.parametrize(
    "tensors", [{1: torch.ones(1)}, {"a": [1.0]}, {"a": np.array(["x"])}, {"__metadata__": torch.ones(1)}]
)
def test_safetensors_refuses_to_write(tmp_path, tensors):
    with pytest.raises(TypeError):
        save_safetensors(tensors, tmp_path / "f")
    assert os.listdir(tmp_path) == []
