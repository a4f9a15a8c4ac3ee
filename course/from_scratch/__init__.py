"""What torch does in one call, written out: the lecture's formulas as short code.

    tape             autograd for single numbers: + and *, relu, backward
    activations      relu, sigmoid, softmax, log_softmax, logsumexp, and their gradients
    losses           cross_entropy (smoothing, weights, ignored targets), bce_with_logits, mse
    layers           linear, dropout, batch_norm, layer_norm, group_norm; linear's backward
    two_modes        BatchNorm and dropout as torch has them: what train and eval mode change
    initialisation   He and Xavier, and the gain of an activation
    deep             a network of equal layers, plain or residual, to experiment with depth
    optimizers       SGD with momentum and Nesterov, Adam, AdamW, one step at a time

They are meant to be read, and are the reference solutions of exercises; for training, use torch.
Each is tested against the torch operator of the same name.
"""
