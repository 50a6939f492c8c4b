"""Tensors of two devices in one call: an error, whatever part of the call they are, and never a read of memory that is not there."""

import pytest

import ampnative as torch

F = torch.nn.functional
CPU, INDEX, ROW, MASK = torch.ones(3, 4), torch.zeros(1, dtype=torch.int64), torch.ones(1, 4), torch.ones(3, 4, dtype=torch.bool)
CALLS = {  # of what lies elsewhere: the index, as a row and as a matrix, values, a mask
    "index_select": lambda v, i, s, m: CPU.index_select(0, v),
    "gather": lambda v, i, s, m: CPU.gather(0, i),
    "take_along_dim": lambda v, i, s, m: torch.take_along_dim(CPU, i, 0),
    "index_add": lambda v, i, s, m: CPU.index_add(0, v, ROW),
    "index_add of values": lambda v, i, s, m: CPU.index_add(0, INDEX, s),
    "index_copy": lambda v, i, s, m: CPU.index_copy(0, v, ROW),
    "index_fill": lambda v, i, s, m: CPU.index_fill(0, v, 1.0),
    "index_reduce": lambda v, i, s, m: CPU.index_reduce(0, v, ROW, "amax"),
    "scatter of a number": lambda v, i, s, m: CPU.scatter(0, i, 1.0),
    "scatter of values": lambda v, i, s, m: CPU.scatter(0, torch.zeros(1, 4, dtype=torch.int64), s),
    "scatter_add": lambda v, i, s, m: CPU.scatter_add(0, i, ROW),
    "scatter_reduce": lambda v, i, s, m: CPU.scatter_reduce(0, i, ROW, "prod"),
    "diagonal_scatter": lambda v, i, s, m: CPU.diagonal_scatter(s[0, :3]),
    "put": lambda v, i, s, m: torch.put(CPU, v, torch.ones(1)),
    "put of values": lambda v, i, s, m: torch.put(CPU, INDEX, s[0, :1]),
    "index_put": lambda v, i, s, m: CPU.index_put((v,), torch.ones(4)),
    "index_put of values": lambda v, i, s, m: CPU.index_put((INDEX,), s),
    "x[index]": lambda v, i, s, m: CPU[v],
    "x[mask]": lambda v, i, s, m: CPU[m],
    "x[index] =": lambda v, i, s, m: CPU.clone().__setitem__(v, 1.0),
    "x[index] = values": lambda v, i, s, m: CPU.clone().__setitem__(INDEX, s),
    "x[mask] =": lambda v, i, s, m: CPU.clone().__setitem__(m, 1.0),
    "masked_scatter": lambda v, i, s, m: CPU.masked_scatter(MASK, s.expand(3, 4)),
    "masked_select": lambda v, i, s, m: CPU.masked_select(m),
    "bernoulli_": lambda v, i, s, m: torch.empty(3, 4).bernoulli_(s),
    "multilabel_margin_loss": lambda v, i, s, m: F.multilabel_margin_loss(torch.ones(1, 4), i),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("elsewhere", ["meta", "cuda"])
def test_two_devices_are_refused(elsewhere, call):
    with torch.cuda.emulate(), pytest.raises(RuntimeError, match="same device|meta tensors"):
        CALLS[call](INDEX.to(elsewhere), INDEX.to(elsewhere).expand(1, 4), ROW.to(elsewhere), MASK.to(elsewhere))


def test_indices_on_the_cpu_select_on_other_devices():
    with torch.cuda.emulate():
        with pytest.raises(RuntimeError, match="same device"):
            ROW.cuda().gather(0, torch.zeros(1, 4, dtype=torch.int64))
        x = torch.arange(12.0, device="cuda").reshape(3, 4)
        assert x[torch.tensor([2, 0])][:, 1].tolist() == [9.0, 1.0] and x[MASK].numel() == 12
        x[torch.tensor([1])] = 0.0
        x[0, torch.tensor([1])] = torch.tensor(5.0)  # a number in a tensor joins any device
        assert x.sum().item() == 48 and x.device.type == "cuda"
    meta = torch.ones(3, 4, device="meta")
    assert meta[INDEX].shape == (1, 4) and meta[INDEX].device.type == "meta"


@pytest.mark.parametrize("call", [lambda m: m.nonzero(), lambda m: CPU.to("meta")[m], lambda m: CPU.to("meta").masked_select(m)])
def test_sizes_that_depend_on_values_are_not_made_up(call):
    with pytest.raises(NotImplementedError, match="depends on values"):
        call(MASK.to("meta"))


@pytest.mark.parametrize("elsewhere", ["meta", "cuda"])
def test_states_of_recurrent_nets_are_where_the_input_is(elsewhere):
    nn, x, h = torch.nn, torch.ones(2, 3), torch.ones(2, 4)
    with torch.cuda.emulate():
        there = h.to(elsewhere)
        for state in ((h, there), (there, h)):
            with pytest.raises(RuntimeError, match="same device"):
                nn.LSTMCell(3, 4)(x, state)
            with pytest.raises(RuntimeError, match="same device"):
                nn.LSTM(3, 4)(x[None], tuple(s[None] for s in state))
        for kind in (nn.GRU, nn.RNN):
            with pytest.raises(RuntimeError, match="same device"):
                kind(3, 4)(x[None], there[None])
        with pytest.raises(RuntimeError, match="same device"):
            nn.LSTM(3, 4).to(elsewhere)(x[None].to(elsewhere), (h[None], h[None]))
        out, (last, _) = nn.LSTM(3, 4).cuda()(x[None].cuda(), (h[None].cuda(), h[None].cuda()))
        assert out.device == last.device == torch.device("cuda:0")
