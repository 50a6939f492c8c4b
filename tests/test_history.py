"""The scale history: what a row says, the ring, and its exports."""

import csv
import json
import pickle

import numpy as np
import pytest

import ampnative as torch
from ampnative.amp import GradScaler, HistoryRow, ScaleHistory

INF, NAN = float("inf"), float("nan")


def play(pattern, **kwargs):
    """A scaler after one step per mark: '.' finite, 'i' inf; 's' is update(6.0)."""
    scaler = GradScaler("cpu", **kwargs)
    p = torch.zeros(1).requires_grad_()
    opt = torch.optim.SGD([p], lr=0.1)
    for mark in pattern:
        scaler.scale(torch.ones(()))
        if mark == "s":
            scaler.update(6.0)
            continue
        p.grad = torch.tensor([INF if mark == "i" else 1.0])
        scaler.step(opt)
        scaler.update()
    return scaler


def test_rows_say_what_update_did():
    history = play("..i.s.", init_scale=8.0, growth_interval=2).history
    assert list(history) == [
        HistoryRow(0, 8.0, 0.0, 1, "keep"),
        HistoryRow(1, 16.0, 0.0, 0, "grow"),
        HistoryRow(2, 8.0, 1.0, 0, "backoff"),
        HistoryRow(3, 8.0, 0.0, 1, "keep"),
        HistoryRow(4, 6.0, 0.0, 1, "set"),
        HistoryRow(5, 12.0, 0.0, 0, "grow"),
    ]
    assert history[-1].step == 5 and history[0].action == "keep" and history.total == 6
    with pytest.raises(IndexError):
        history[6]


def test_refused_growth_is_a_hold():
    history = play("..", init_scale=3e38, growth_interval=1).history
    assert [row.action for row in history] == ["hold", "hold"] and history[0].scale == np.float32(3e38)


def test_array():
    array = np.asarray(play(".i.", init_scale=8.0).history)
    assert array.dtype.names == ("step", "scale", "found_inf", "tracker", "action")
    assert array["step"].dtype == np.int64 and array["scale"].dtype == np.float32 and array["tracker"].dtype == np.int32
    assert array["scale"].tolist() == [8.0, 4.0, 4.0] and array["action"].tolist() == ["keep", "backoff", "keep"]
    assert np.asarray(ScaleHistory()).shape == (0,)
    with pytest.raises(ValueError, match="copy"):
        np.array(ScaleHistory(), copy=False)


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 255, 256, 257, 1000])
def test_ring_keeps_the_newest(capacity):
    history = ScaleHistory(capacity)
    for number in range(600):
        history.append(float(number), 0.0, number, 0)
        kept = min(number + 1, capacity)
        if number in (0, 1, capacity - 1, capacity, 2 * capacity, 599):
            expected = list(range(number + 1 - kept, number + 1))
            assert [row.step for row in history] == expected == np.asarray(history)["step"].tolist()
            assert [row.scale for row in history] == expected
    assert len(history) == min(600, capacity) and history.total == 600
    assert len(history._rows) == min(capacity, 768) * 21


def test_memory_is_bounded():
    history = ScaleHistory()
    for _ in range(20000):
        history.append(1.0, 0.0, 0, 0)
    assert len(history._rows) == 4096 * 21


def test_csv_reads_back(tmp_path):
    history = play(".i", init_scale=0.1).history
    history.append(NAN, 2.0, 3, 4)
    history.to_csv(tmp_path / "h.csv")
    with open(tmp_path / "h.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(r["step"]) for r in rows] == [0, 1, 2] and rows[1]["action"] == "backoff"
    assert float(rows[0]["scale"]) == np.float32(0.1) and np.isnan(float(rows[2]["scale"]))


def test_json_is_strict(tmp_path):
    history = ScaleHistory()
    for scale in (1.5, INF, -INF, NAN):
        history.append(scale, NAN, 0, 0)
    history.to_json(tmp_path / "h.json")

    def refuse(text):
        raise ValueError(text)

    rows = json.loads((tmp_path / "h.json").read_text(), parse_constant=refuse)
    assert [r["scale"] for r in rows] == [1.5, "inf", "-inf", "nan"] and rows[0]["found_inf"] == "nan"


def test_html_shows_the_last_rows():
    html = play("." * 30, init_scale=8.0)._history._repr_html_()
    assert html.count("<tr>") == 21 and "10 earlier updates" in html and "<td>29</td>" in html


def test_plot_draws_on_given_axes():
    class Axes:
        def __init__(self):
            self.calls = []

        def __getattr__(self, name):
            return lambda *args, **kwargs: self.calls.append((name, args))

    axes = Axes()
    assert play(".i.", init_scale=8.0).history.plot(axes) is axes
    names = [name for name, _ in axes.calls]
    assert "step" in names and "set_yscale" in names
    assert [args[0].tolist() for name, args in axes.calls if name == "plot"] == [[1]]


def test_pickle_and_clear():
    history = play(".i", init_scale=8.0).history
    twin = pickle.loads(pickle.dumps(history))
    assert list(twin) == list(history)
    twin.clear()
    assert len(twin) == 0 and twin.total == 0 and len(history) == 2


def test_wrong_arguments():
    with pytest.raises(ValueError, match="capacity"):
        ScaleHistory(0)
    scaler = GradScaler("cpu")
    with pytest.raises(TypeError, match="ScaleHistory"):
        scaler.history = []
    scaler.history = ScaleHistory(2)
    assert scaler.history.capacity == 2


def test_slices_are_lists_of_rows_and_other_keys_are_refused():
    history = ScaleHistory(3)
    for scale in (1.0, 2.0, 3.0, 4.0):
        history.append(scale, 0.0, 0, 0)
    rows = list(history)
    assert [r.scale for r in rows] == [2, 3, 4]
    for key in (slice(1, 3), slice(None), slice(-2, None), slice(None, None, -1), slice(5, 9), slice(0, 3, 2)):
        assert history[key] == rows[key] and type(history[key]) is list
    assert history[np.int64(1)] == history[torch.tensor(1)] == rows[1]
    for key in ("a", 1.0, None, (0, 1)):
        with pytest.raises(TypeError, match=r"a history takes the position of a row or a slice of them, not .*numpy.asarray\(history\)"):
            history[key]
    with pytest.raises(IndexError):
        history[3]
