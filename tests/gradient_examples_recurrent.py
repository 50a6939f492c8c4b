"""Recurrent cells and layers."""

from gradient_examples import Example, spaced, torch

H = 2  # hidden features of all examples


def _weights(gates, features, *, projection=0):
    width = projection or H
    shapes = [(gates * H, features), (gates * H, width), (gates * H,), (gates * H,)]
    values = [spaced(*s) * (0.4 + 0.1 * i) for i, s in enumerate(shapes)]
    return [*values, spaced(projection, H) * 0.7] if projection else values


def _cell(name, gates, *, lstm=False):
    function = getattr(torch, name)
    states = [spaced(2, H), spaced(2, H) * 0.5] if lstm else [spaced(2, H)]
    inputs = (spaced(2, 3), *states, *_weights(gates, 3))

    def run(x, *rest):
        if lstm:
            return function(x, rest[:2], *rest[2:])
        return function(x, *rest)

    return [Example(run, inputs)]


def _layer(kind, gates, sizes, *, reverse=False, projection=0):
    from ampnative import _recurrent

    if torch.__name__ != "ampnative":
        return []
    operands = _recurrent.Operands(_recurrent.Spec(kind, sizes, reverse), True, bool(projection))
    states = [spaced(sizes[0], projection or H)] + ([spaced(sizes[0], H) * 0.5] if kind == _recurrent.LSTM else [])
    inputs = (spaced(sum(sizes), 3) * 0.5, *states, *_weights(gates, 3, projection=projection))
    return [Example(lambda *t: torch._C.nn.mkldnn_rnn_layer(list(t), operands), inputs)]


EXAMPLES = {
    "lstm_cell": _cell("lstm_cell", 4, lstm=True),
    "gru_cell": _cell("gru_cell", 3),
    "rnn_tanh_cell": _cell("rnn_tanh_cell", 1),
    "rnn_relu_cell": _cell("rnn_relu_cell", 1),
    "mkldnn_rnn_layer": [
        *_layer(0, 4, (2, 2)), *_layer(0, 4, (3, 1), reverse=True), *_layer(0, 4, (2, 1), projection=1),
        *_layer(1, 3, (2, 2)), *_layer(1, 3, (2, 1), reverse=True), *_layer(2, 1, (2, 1, 1)), *_layer(3, 1, (2, 2), reverse=True),
    ],
}  # fmt: skip
WITHOUT_EXAMPLE = {"cudnn_rnn": "the function of mkldnn_rnn_layer, for the other device"}
