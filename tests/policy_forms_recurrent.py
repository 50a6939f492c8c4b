"""How test_policy calls recurrent cells."""

X, H1, W1 = (2, 3), (2, 3), (3, 3)

FORMS = {
    "rnn_tanh_cell": ([X, H1, W1, W1], None),
    "rnn_relu_cell": ([X, H1, W1, W1], None),
}
# On the CPU the gates come from products and are 16 bits wide, but the state joins them as it is: promotion decides after autocast has
# cast, which no dtype rule of one op says. The layers take a description of their list.
LEFT_OUT = {"lstm_cell", "gru_cell", "mkldnn_rnn_layer", "cudnn_rnn"}
