"""Cleo: divides by the number of batches, twice."""

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
def evaluate(model, loader, criterion):
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    loss, accuracy = 0.0, 0.0
    with torch.no_grad():
        for inputs, targets in loader:
            logits = model(inputs)
            loss += criterion(logits, targets).item()
            accuracy += (logits.argmax(dim=1) == targets).float().mean().item()
    for m, training in modes:
        m.training = training
    return {"loss": loss / len(loader), "accuracy": accuracy / len(loader)}

# %% accumulate
def accumulate(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    total = 0.0
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) / len(micro_batches)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total

# %% who-counts-more [markdown]
# All examples count the same, since each loss is a mean.

# %% clip
def clip_by_global_norm(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.cat([g.flatten() for g in grads]).norm()
    if norm > max_norm:
        for g in grads:
            g.mul_(max_norm / norm)
    return norm
