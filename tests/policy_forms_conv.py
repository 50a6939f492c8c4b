"""How convolutions are called to compare amp.result_dtype with what runs."""

X1, X2, X3 = (1, 2, 4), (1, 2, 4, 4), (1, 2, 4, 4, 4)
W1, W2, W3 = (3, 2, 3), (3, 2, 3, 3), (3, 2, 3, 3, 3)
T1, T2, T3 = (2, 3, 3), (2, 3, 3, 3), (2, 3, 3, 3, 3)
LISTS = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


def same(f, *t, device):
    return f(*t, padding="same")


FORMS = {
    "convolution": ([X2, W2, (3,)], lambda f, *t, device: f(*t, *LISTS)),
    "convolution_all": ([X2, W2, (3,)], lambda f, *t, device: f(*t, *LISTS, False, False, True, True)),
    "convolution_deprecated": ([X2, W2, (3,)], lambda f, *t, device: f(*t, *LISTS, False, False, True)),
    "conv_input": ([(1, 3, 2, 2), W2], lambda f, *t, device: f(*t, [4, 4], [1], [0], [1], 1)),
    "conv_weight": ([(1, 3, 2, 2), X2], lambda f, *t, device: f(*t, [3, 3], [1], [0], [1], 1)),
    "conv1d": ([X1, W1], None),
    "conv2d": ([X2, W2, (3,)], None),
    "conv3d": ([X3, W3], None),
    "conv1d_padding": ([X1, W1], same),
    "conv2d_padding": ([X2, W2], same),
    "conv3d_padding": ([X3, W3], same),
    "conv_transpose1d": ([X1, T1], None),
    "conv_transpose2d": ([X2, T2, (3,)], None),
    "conv_transpose3d": ([X3, T3], None),
    "conv_tbc": ([(4, 2, 3), (3, 3, 2), (2,)], None),
    "im2col": ([X2], lambda f, x, device: f(x, 2, 1, 0, 1)),
    "col2im": ([(1, 8, 9)], lambda f, x, device: f(x, 4, 2, 1, 0, 1)),
}
# Asked by its name, which it shares with the row before it, whose policy is another one on the CPU.
LEFT_OUT = {"convolution_deprecated"}
