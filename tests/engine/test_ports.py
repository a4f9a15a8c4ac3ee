"""Six scripts on the engine end where their loops by hand do: five with the same bits."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

EXACT = ("cnn", "vae", "tied_lstm", "finetune", "padded_dicts")
PORTS = (*EXACT, "masked_lm")  # its hand loop weighs micro-batches in another order of rounding


@pytest.mark.parametrize("name", PORTS)
def test_a_port_is_its_loop_by_hand(name):
    port = import_module(f"examples.ports.{name}")
    ours, history = port.train()
    theirs, losses = port.by_hand()
    close = {"rtol": 0, "atol": 0} if name in EXACT else {"rtol": 1e-6, "atol": 1e-9}
    for key, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], tensor, **close, msg=f"{name}: {key}")
    watched = history.column(history.monitor)
    assert watched == pytest.approx(losses, rel=1e-6)


def test_a_truncated_run_that_is_killed_goes_on_with_its_hidden_state(tmp_path):
    from examples.ports import tied_lstm

    whole, _ = tied_lstm.train()
    for updates in (4, 9, 18):  # inside an epoch, inside another, at the end
        model, _ = tied_lstm.train(resume="auto", max_updates=updates, run_dir=tmp_path / "run")
    assert torch.equal(model.lstm.weight_hh_l0, whole.lstm.weight_hh_l0)
