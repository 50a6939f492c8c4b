"""Convolutions of every number of dimensions, with strides, groups and dilations that meet every way through the kernels."""

from gradient_examples import Example, spaced, torch

F = torch.nn.functional


def x(*shape, shift=0.0):
    return spaced(*shape) + shift


def conv(function, *shapes, second=True, **options):
    """The first example has all arguments at once: input, weight, bias."""
    return Example(lambda *t: function(*t, **options), tuple(x(*s, shift=0.1 * i) for i, s in enumerate(shapes)), second)


def private(name):
    return getattr(torch._C.nn, name)


SIZES = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 1}
EXAMPLES = {
    "convolution": [
        conv(torch.convolution, (1, 2, 4, 3), (2, 1, 2, 2), (2,), stride=[2, 1], padding=[1, 0], dilation=[1, 1], transposed=False,
             output_padding=[0, 0], groups=2),
        conv(torch.convolution, (1, 2, 3, 3), (2, 1, 2, 2), (2,), stride=[2, 1], padding=[1, 0], dilation=[1, 1], transposed=True,
             output_padding=[1, 0], groups=2),
    ],
    "conv_input": [
        Example(lambda g, w: private("_conv_input")(g, w, [5, 4], **SIZES), (x(2, 3, 3, 2), x(3, 2, 2, 2))),
        Example(lambda g, w: private("_conv_input")(g, w, [3], [1], [1], [1], 3), (x(1, 3, 3), x(3, 1, 3))),
    ],
    "conv_weight": [
        Example(lambda g, v: private("_conv_weight")(g, v, [2, 2], **SIZES), (x(2, 3, 3, 2), x(2, 2, 5, 4))),
        Example(lambda g, v: private("_conv_weight")(g, v, [3], [1], [1], [1], 3), (x(1, 3, 3), x(1, 3, 3))),
    ],
    "conv1d": [
        conv(F.conv1d, (2, 2, 5), (3, 2, 2), (3,), stride=2, padding=1),
        conv(F.conv1d, (4, 5), (4, 1, 3), (4,), groups=4, padding=2, dilation=2, second=False),
    ],
    "conv1d_padding": [conv(F.conv1d, (1, 1, 4), (2, 1, 2), (2,), padding="same", second=False)],
    "conv2d": [
        conv(F.conv2d, (2, 3, 4, 3), (2, 3, 2, 3), (2,), stride=(1, 2), padding=(1, 1)),
        conv(F.conv2d, (2, 3, 2, 2), (2, 3, 1, 1), second=False),
        conv(F.conv2d, (1, 2, 4, 4), (4, 1, 3, 3), (4,), groups=2, padding=1, stride=2),
    ],
    "conv2d_padding": [
        conv(F.conv2d, (1, 1, 3, 3), (2, 1, 2, 3), (2,), padding="same", dilation=(1, 2)),
        conv(F.conv2d, (1, 1, 3, 3), (2, 1, 2, 3), padding="valid", second=False),
    ],
    "conv3d": [conv(F.conv3d, (1, 2, 3, 3, 2), (2, 2, 2, 2, 2), (2,), padding=(0, 1, 0), stride=(1, 2, 1))],
    "conv3d_padding": [conv(F.conv3d, (1, 1, 2, 2, 2), (1, 1, 2, 1, 2), padding="same", second=False)],
    "conv_transpose1d": [conv(F.conv_transpose1d, (2, 2, 3), (2, 2, 3), (2,), stride=2, padding=1, output_padding=1)],
    "conv_transpose2d": [
        conv(F.conv_transpose2d, (1, 2, 3, 2), (2, 2, 2, 3), (2,), stride=(2, 1), dilation=(1, 2), padding=(0, 1)),
        conv(F.conv_transpose2d, (1, 2, 2, 2), (2, 1, 2, 2), groups=2, stride=3, output_padding=2, dilation=3, second=False),
        # an output padding of a stride and more
        conv(F.conv_transpose2d, (1, 2, 2, 2), (2, 3, 2, 2), stride=1, output_padding=2, dilation=3),
    ],
    "conv_transpose3d": [conv(F.conv_transpose3d, (1, 2, 2, 2, 2), (2, 1, 2, 1, 2), (1,), stride=(2, 1, 1), second=False)],
    "conv_tbc": [conv(torch.conv_tbc, (4, 2, 3), (2, 3, 2), (2,), pad=1)],
    "im2col": [
        Example(lambda v: F.unfold(v, (2, 3), dilation=(1, 2), padding=(0, 2), stride=(2, 1)), (x(1, 2, 4, 3),)),
        Example(lambda v: F.unfold(v, 2), (x(2, 3, 3),)),
    ],
    "col2im": [
        Example(lambda v: F.fold(v, (4, 3), (2, 1), dilation=(2, 1), padding=1), (x(1, 4, 20),)),
        Example(lambda v: F.fold(v, 3, 2), (x(4, 4),)),
    ],
}
WITHOUT_EXAMPLE = {
    "convolution_all": "the row convolution under another name",
    "convolution_deprecated": "the row convolution under another name",
}
