"""Bugs of the loop: clear, step, clip, accumulate, schedule, log."""

from tests.debug.faulty.kit import STYLES, F, nn, pair, parts, score, torch, whole


@pair("missing-zero-grad", style=list(STYLES))
def never_cleared(bug, style):
    s = parts(style)

    def train_step(batch):
        x, y = batch
        if not bug:
            s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](x), y)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step, "evaluate": score(s)}


@pair("missing-zero-grad", optimizer=["Adam", "AdamW", "RMSprop"])
def cleared_after_but_for_the_head(bug, optimizer):
    s = parts("mlp", 0.005, optimizer)

    def train_step(batch):
        loss = F.cross_entropy(s["model"](batch[0]), batch[1])
        loss.backward()
        s["optimizer"].step()
        for p in list(s["model"].parameters())[: -2 if bug else None]:
            p.grad = None
        return loss

    return s | {"train_step": train_step}


@pair("missing-zero-grad", style=["mlp", "cnn"])
def train_without_clearing(bug, style):
    s = parts(style)

    def train(n_steps):
        done, losses = 0, []
        while done < n_steps:
            for x, y in s["train_loader"]:
                loss = s["loss_fn"](s["model"](x), y)
                if not bug:
                    s["model"].zero_grad()
                loss.backward()
                s["optimizer"].step()
                losses.append(loss.item())
                done += 1
                if done == n_steps:
                    break
        return losses

    return s | {"train": train, "evaluate": score(s)}


@pair("missing-zero-grad")
def lbfgs_closure(bug):
    s = parts("regression", 0.1, "LBFGS", words={"max_iter": 3})

    def train_step(batch):
        x, y = batch

        def closure():
            if not bug:
                s["optimizer"].zero_grad()
            loss = s["loss_fn"](s["model"](x), y)
            loss.backward()
            return loss

        return s["optimizer"].step(closure).item()

    return s | {"train_step": train_step}


@pair("grads-cleared-before-step", "missing-zero-grad", style=["mlp", "rnn"])
def cleared_between(bug, style):
    s = parts(style)

    def train_step(batch):
        x, y = batch
        if not bug:
            s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](x), y)
        loss.backward()
        if bug:
            s["optimizer"].zero_grad()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("step-before-backward", clear=["first", "after"])
def step_too_early(bug, clear):
    s = parts("mlp", model=nn.Linear(8, 3))

    def train_step(batch):
        x, y = batch
        loss = s["loss_fn"](s["model"](x), y)
        if clear == "first" or not bug:
            s["optimizer"].zero_grad()
        if bug:
            s["optimizer"].step()
        if clear == "after" and bug:
            s["optimizer"].zero_grad()
        loss.backward()
        if not bug:
            s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("no-optimizer-step")
def step_forgotten(bug):
    s = parts("cnn")

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        if not bug:
            s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("optimizer-rebuilt", style=["mlp", "regression"])
def new_optimizer_each_step(bug, style):
    s = parts(style, 0.005, "Adam")

    def train_step(batch):
        optimizer = torch.optim.Adam(s["model"].parameters(), 0.005) if bug else s["optimizer"]
        optimizer.zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("clip-misplaced", where=["before", "after", "value-after"])
def clipped_elsewhere(bug, where):
    s = parts("mlp", declared={"max_grad_norm": 0.5} if "value" not in where else {})
    clip = nn.utils.clip_grad_value_ if "value" in where else nn.utils.clip_grad_norm_

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        if bug and "before" in where:
            clip(s["model"].parameters(), 0.5)
        loss.backward()
        if not bug:
            clip(s["model"].parameters(), 0.5)
        s["optimizer"].step()
        if bug and "after" in where:
            clip(s["model"].parameters(), 0.5)
        return loss.item()

    return s | {"train_step": train_step}


@pair("clip-misplaced")
def clipped_every_micro_batch(bug):
    s = parts("mlp", declared={"accumulate": 4})
    state = {"i": 0}

    def train_step(batch):
        state["i"] += 1
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        (loss / 4).backward()
        if bug or state["i"] % 4 == 0:
            nn.utils.clip_grad_norm_(s["model"].parameters(), 0.1)
        if state["i"] % 4 == 0:
            s["optimizer"].step()
            s["optimizer"].zero_grad()
        return loss.item()

    return s | {"train_step": train_step}


@pair("accum-not-divided", style=["mlp", "transformer", "binary"])
def accumulated_in_full(bug, style):
    s = parts(style, declared={"accumulate": 4})
    count = 0

    def train_step(batch):
        nonlocal count
        count += 1
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        (loss if bug else loss / 4).backward()
        if count % 4 == 0:
            s["optimizer"].step()
            s["optimizer"].zero_grad()
        return loss.item()

    return s | {"train_step": train_step}


@pair("accum-not-divided", style=["mlp", "cnn"])
def chunks_in_full(bug, style):
    s = parts(style)

    def train_step(batch):
        s["optimizer"].zero_grad()
        total = 0.0
        for x, y in zip(batch[0].chunk(4), batch[1].chunk(4), strict=True):
            loss = s["loss_fn"](s["model"](x), y)
            if not bug:
                loss = loss * len(y) / len(batch[1])
            loss.backward()
            total += loss.item()
        s["optimizer"].step()
        return total

    return s | {"train_step": train_step}


@pair("accum-trailing-window", how=["leaks", "drops", "divides"])
def remainder(bug, how):
    s = parts("mlp")  # 11 batches an epoch, 4 to an update

    def train(n_steps):
        done, number = 0, len(s["train_loader"])
        while done < n_steps:
            if how == "drops" or not bug:
                s["optimizer"].zero_grad()
            for i, (x, y) in enumerate(s["train_loader"]):
                size = 4 if bug else min(4, number - i // 4 * 4)
                (s["loss_fn"](s["model"](x), y) / size).backward()
                last = i + 1 == number and (not bug or how == "divides")
                if (i + 1) % 4 == 0 or last:
                    s["optimizer"].step()
                    s["optimizer"].zero_grad()
                done += 1

    return s | {"train": train, "declared": {"accumulate": 4}}


def cosine(s, span):
    return torch.optim.lr_scheduler.CosineAnnealingLR(s["optimizer"], T_max=span)


@pair("scheduler-misplaced", how=["cosine", "step", "micro", "early", "declared"])
def schedule(bug, how):
    s = parts("mlp", loader={"batch_size": 8})  # 22 batches an epoch
    make = torch.optim.lr_scheduler
    if how == "step":
        scheduler = make.StepLR(s["optimizer"], 5, 0.5)
    else:
        scheduler = cosine(s, 10 if how in ("cosine", "declared") else 220)
    state = {"i": 0}

    def train_step(batch):
        state["i"] += 1
        if how == "early" and bug:
            scheduler.step()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1]) / (4 if how == "micro" else 1)
        loss.backward()
        update = how != "micro" or state["i"] % 4 == 0
        if update:
            s["optimizer"].step()
            s["optimizer"].zero_grad()
        if (how == "early" and not bug) or (how == "micro" and (bug or update)):
            scheduler.step()
        if bug and how in ("cosine", "step", "declared"):
            scheduler.step()
        return loss.item()

    declared = {"scheduler_unit": "epoch"} if how == "declared" else {}
    return s | {"train_step": train_step, "scheduler": scheduler, "declared": declared}


@pair("undetached-logging", what=["loss", "sum", "output"])
def kept_tensors(bug, what):
    s = parts("mlp")
    kept = {"list": [], "total": 0.0}

    def train_step(batch):
        s["optimizer"].zero_grad()
        out = s["model"](batch[0])
        loss = s["loss_fn"](out, batch[1])
        loss.backward()
        s["optimizer"].step()
        if what == "sum":
            kept["total"] = kept["total"] + (loss if bug else loss.item())
        elif what == "loss":
            kept["list"].append(loss if bug else loss.detach())
        else:
            kept["list"].append((loss, out) if bug else out.detach())
        return float(loss)

    return s | {"train_step": train_step}


@pair("undetached-logging", "no-grad-missing")
def kept_outputs_of_evaluation(bug):
    s = parts("rnn")
    history = []

    def evaluate():
        s["model"].eval()
        with torch.set_grad_enabled(bug):
            history.append([s["model"](x) for x, _ in s["val_loader"]])
        s["model"].train()
        return {"mean": float(sum(o.mean() for o in history[-1]))}

    return whole(s) | {"evaluate": evaluate}


@pair("non-finite-skipped", "non-finite-values")
def skips_nan(bug):
    s = parts("regression")
    x, _ = s["train_loader"].dataset.tensors
    if bug:
        x[5::40] = float("nan")

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        if torch.isnan(loss):
            return 0.0
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("rng-reseeded", "loss-negated", "grads-cleared-before-step", how=["seed", "sign", "window"])
def odd_steps(bug, how):
    s = parts("mlp", declared={"accumulate": 4} if how == "window" else {})
    state = {"i": 0}

    def train_step(batch):
        state["i"] += 1
        if bug and how == "seed":
            torch.manual_seed(1)
        if how != "window" or bug:
            s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        scale = (-1 if bug and how == "sign" else 1) / (4 if how == "window" else 1)
        (loss * scale).backward()
        if how != "window" or state["i"] % 4 == 0:
            s["optimizer"].step()
            s["optimizer"].zero_grad()
        return loss.item()

    return s | {"train_step": train_step}
