"""Bugs of mode, graph and metric."""

from tests.debug.faulty.kit import F, nn, pair, parts, plain, score, torch, whole


@pair("train-mode-in-eval", style=["mlp", "cnn", "transformer", "binary"])
def scored_in_train_mode(bug, style):
    return whole(parts(style), train=bug)


@pair("no-grad-missing", style=["mlp", "rnn", "regression"])
def scored_with_graph(bug, style):
    return whole(parts(style), grad=bug)


@pair("eval-mode-in-training", style=["mlp", "cnn"])
def trained_in_eval_mode(bug, style):
    s = parts(style)
    step = plain(s)

    def train_step(batch):
        x, y = batch
        s["model"].train(not bug)
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](x), y)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    assert step
    return s | {"train_step": train_step, "evaluate": score(s)}


@pair("eval-mode-in-training", style=["mlp", "cnn"])
def never_back_to_train(bug, style):
    s = parts(style)

    def train(n_steps):
        for i, (x, y) in enumerate(s["train_loader"]):
            if i == n_steps:
                break
            s["optimizer"].zero_grad()
            s["loss_fn"](s["model"](x), y).backward()
            s["optimizer"].step()

    return s | {"train": train, "evaluate": score(s, back=not bug)}


@pair("train-mode-in-eval")
def functional_dropout(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 3)

        def forward(self, x):
            return self.b(F.dropout(self.a(x).relu(), 0.5, training=bug or self.training))

    return whole(parts("mlp", model=Net()))


@pair("metric-batch-mean")
def mean_of_batch_means(bug):
    s = parts("mlp", val_size=50)
    x, y = s["val_loader"].dataset.tensors
    s["val_loader"].dataset.tensors = (x[:67], torch.cat([y[:64], (y[64:67] + 1) % 3]))

    def evaluate():
        s["model"].eval()
        rates, hits, count = [], 0, 0
        with torch.no_grad():
            for x, y in s["val_loader"]:
                right = s["model"](x).argmax(1) == y
                rates.append(right.float().mean().item())
                hits, count = hits + right.sum().item(), count + len(y)
        s["model"].train()
        return {"accuracy": sum(rates) / len(rates) if bug else hits / count}

    return whole(s) | {"evaluate": evaluate}


@pair("metric-not-reset")
def carried_over(bug):
    s = whole(parts("mlp"))
    state = {"hits": 0, "batches": 0}

    def evaluate():
        if not bug:
            state.update(hits=0, batches=0)
        s["model"].eval()
        with torch.no_grad():
            for x, y in s["val_loader"]:
                state["hits"] += (s["model"](x).argmax(1) == y).sum().item()
        s["model"].train()
        return {"hits": state["hits"]}

    return s | {"evaluate": evaluate}


@pair("metric-wrong")
def returns_inside_the_loop(bug):
    s = whole(parts("mlp"))

    def evaluate():
        s["model"].eval()
        hits = count = 0
        with torch.no_grad():
            for x, y in s["val_loader"]:
                hits += (s["model"](x).argmax(1) == y).sum().item()
                count += len(y)
                if bug:
                    break
        s["model"].train()
        return {"accuracy": hits / count}

    return s | {"evaluate": evaluate}


@pair("metric-wrong")
def argmax_over_the_batch(bug):
    s = whole(parts("mlp", loader={"batch_size": 8}))

    def evaluate():
        s["model"].eval()
        hits = count = 0
        with torch.no_grad():
            for x, y in s["val_loader"]:
                guess = s["model"](x).argmax(0 if bug else 1)
                hits += (guess == y[: len(guess)]).sum().item()
                count += len(y)
        s["model"].train()
        return {"acc": hits / count}

    return s | {"evaluate": evaluate}


@pair("evaluate-changes-model", "evaluates-training-data")
def steps_while_scoring(bug):
    s = whole(parts("regression"))
    step = plain(s)

    def evaluate():
        if bug:
            losses = [step(batch) for batch in s["val_loader"]]
            return {"loss": sum(losses) / len(losses)}
        return score(s)()

    return s | {"evaluate": evaluate}


@pair("evaluates-training-data")
def scores_training_data(bug):
    s = whole(parts("mlp"))
    other = s | {"val_loader": s["train_loader"] if bug else s["val_loader"]}
    return s | {"evaluate": score(other)}


@pair("loader-exhausted")
def iterator_for_validation(bug):
    s = whole(parts("mlp"))
    batches = iter(list(s["val_loader"]))

    def evaluate():
        s["model"].eval()
        losses = []
        with torch.no_grad():
            for x, y in batches if bug else s["val_loader"]:
                losses.append(s["loss_fn"](s["model"](x), y).item())
        s["model"].train()
        return {"loss": sum(losses) / max(1, len(losses))}

    return s | {"evaluate": evaluate}
