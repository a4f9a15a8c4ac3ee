"""Gus: one right answer, and a loop that never ends."""

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

# %% accumulate
def accumulate(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    i = 0
    while i < len(micro_batches):
        inputs, targets = micro_batches[i]
        criterion(model(inputs), targets).backward()
    optimizer.step()
