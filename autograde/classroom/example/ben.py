"""Ben: all right, written differently; prints and warns on the way."""

# %% train-one-epoch
import warnings


def train_one_epoch(model, loader, criterion, optimizer):
    warnings.warn("training ...")
    losses, sizes = [], []
    model.train(True)
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach() * y.shape[0])
        sizes.append(y.shape[0])
    print("0")
    return float(torch.stack(losses).sum()) / sum(sizes)

# %% evaluate
@torch.inference_mode()
def evaluate(model, loader, criterion):
    training = {m: m.training for m in model.modules()}
    model.eval()
    logits, targets = [], []
    for x, y in loader:
        logits.append(model(x))
        targets.append(y)
    logits, targets = torch.cat(logits), torch.cat(targets)
    for m in training:
        m.training = training[m]
    accuracy = logits.argmax(1).eq(targets).float().mean()
    return dict(accuracy=accuracy.item(), loss=criterion(logits, targets).item())

# %% accumulate
def accumulate(model, micro_batches, criterion, optimizer):
    for p in model.parameters():
        p.grad = None
    n = 0
    total = 0
    for x, y in micro_batches:
        loss = criterion(model(x), y) * len(y)
        loss.backward()
        total += float(loss)
        n += len(y)
    for p in model.parameters():
        p.grad /= n
    optimizer.step()
    return total / n

# %% who-counts-more [markdown]
# The last 4 of the 100 count 8 times as much as the rest, because their mean is divided by K as well.
# So they pull the update towards themselves.

# %% clip
def clip_by_global_norm(parameters, max_norm):
    ps = [p for p in parameters if p.grad is not None]
    norm = sum((p.grad ** 2).sum() for p in ps) ** 0.5
    if norm > max_norm:
        for p in ps:
            p.grad = p.grad * (max_norm / norm)
    return norm
