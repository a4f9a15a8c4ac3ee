"""Dan: forgets to clear the gradients, clips each number, and adds micro-batches up in full."""

# %% train-one-epoch
def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    total, count = 0.0, 0
    for inputs, targets in loader:
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(targets)
        count += len(targets)
    return total / count

# %% evaluate
def evaluate(model, loader, criterion):
    model.eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for inputs, targets in loader:
            logits = model(inputs)
            loss += criterion(logits, targets).item() * len(targets)
            correct += (logits.argmax(dim=1) == targets).sum().item()
            count += len(targets)
    return {"loss": loss / count, "accuracy": correct / count}

# %% accumulate
def accumulate(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    total, count = 0.0, 0
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total / len(micro_batches)

# %% clip
def clip_by_global_norm(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.cat([g.flatten() for g in grads]).norm()
    for g in grads:
        g.clamp_(-max_norm, max_norm)
    return norm
