"""Six training scripts, each written twice: on the engine, and as the loop by hand.

    cnn            images in pairs, a schedule, early stopping
    vae            several outputs, a loss that sums over the batch
    tied_lstm      truncated sequences: hidden state carried over and detached
    finetune       a resnet18 with a frozen stem, and averaged weights
    padded_dicts   batches that are dictionaries of padded sequences
    masked_lm      a loss per token, most of them masked, in micro-batches

`train()` and `by_hand()` of each give weights and history; tests/engine/test_ports.py holds them to
be equal. Run one: python -m examples.ports.vae
"""
