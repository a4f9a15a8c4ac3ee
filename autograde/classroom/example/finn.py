"""Finn: one right answer; one cell raises, one function raises, one cell does not parse."""

# %% train-one-epoch
def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    total, count = 0.0, 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(targets)
        count += len(targets)
    return total / count

# %% evaluate
raise RuntimeError("to do: evaluate")

# %% accumulate
def accumulate(model, micro_batches, criterion, optimizer):
    share = 1 / 0
    return share

# %% clip
def clip_by_global_norm(parameters, max_norm)
    return 0
