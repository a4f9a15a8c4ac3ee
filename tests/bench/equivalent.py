"""Mutants that no check can kill, since they do what the right answer does; and why."""

import re

TRAINING = (
    r"01c\.one-update|03a\.(accumulate|evaluate|train-one-epoch)"
    r"|03b\.(overfit-batch|plateau|early-freeze)"
)
BOOKKEEPING = (
    r"total|running|log|largest|criterion|count|num_examples|losses|loss, correct|sizes|lrs|history"
    r"|val|answers|queue|error|share|correct|targets = torch\.cat|update|inputs, targets = loader"
)
EQUIVALENT: tuple[tuple[str, str, str], ...] = (
    (
        ".*",
        r"`self\.(register_|[\w, .]+ = ).* one line earlier",
        "an object's attributes, parameters and buffers are set in any order; what came of another "
        "order was the same on every seed",
    ),
    (
        ".*",
        r"requires_grad= dropped in .*nn\.Parameter\("
        r"|True to False in .*nn\.Parameter\(.*requires_grad",
        "a Parameter asks for its gradient whatever it is made from",
    ),
    (".*", r"0 to -1 in .*(nonzero|where)\([^,]*\)\[0\]", "the tensor has one dimension"),
    (".*", r"Add to Sub in .*[+] 1e-06\b", "within the tolerance, and 0 times anything is 0"),
    (".*", r"FloorDiv to Div in .*numel\(\) // ", "it divides without a rest"),
    (
        r"03h\..*",
        r"(0|1|0\.0) to \S+ in .*(\binf\b|float\('inf'\))",
        "the first loss improves on infinity, and sets again what stood next to it",
    ),
    (".*", r"strict= dropped in .*load_state_dict\(", "strict is its default"),
    (".*", r"weights_only= dropped in .*torch\.load\(", "weights_only is torch.load's default"),
    (
        ".*",
        r"strict= dropped|True to False in `.*zip\(.*strict=True",
        "the lists are of one length",
    ),
    (".*", r"map_location= dropped", "everything is on the CPU here"),
    (
        ".*",
        r"`\w+\.load_state_dict\(.*checkpoint.* one line earlier",
        "model and optimizer are each put back by themselves",
    ),
    (".*", r"in `.*zero_grad\(set_to_none=", "cleared is cleared, to None or to zeros"),
    (".*", r"device= dropped", "everything is on the CPU here"),
    (".*", rf"`({BOOKKEEPING})\b.* one line earlier", "it needs nothing of the line above"),
    (
        TRAINING,
        r"`((optimizer|model)\.zero_grad\(|loss = |for parameter in model).* one line earlier",
        "clearing has three legal places: before forward, before backward, after the step",
    ),
    (r"03a\.train-one-epoch", r"`model\.train\(\)` one line", "above it stands a docstring"),
    (
        r"01c\.one-update",
        r"`(outputs = model|lr =|rates|report|norm =|optimizer\.step|scheduler\.step).* one line"
        r"|on_both_sides: `optimizer\.zero_grad\(\)` (dropped|one line)",
        "it changes nothing that the line above reads; what is cleared last is cleared again",
    ),
    (
        r"01c\.check-workspace",
        r"`(from itertools|def is_older|def judged|result =|installed =|older =).* one line earlier"
        r"|Lt to LtE in `return int|0 to (-1|1) in `parts = \[\*map|1000 to (999|1001)",
        "it needs nothing of the line above; equal numbers never get there; the last zero fills up "
        "what no version lacks, and any base above its numbers will do",
    ),
    (
        r"01c\.step-by-hand",
        r"`(bias|grad_b|joined)\b.* one line earlier",
        "weight and bias move apart from each other",
    ),
    (
        r"03a\.train-one-epoch|03a\.accumulate",
        r"[01] to (-1|0) in `.*(targets\.shape\[0\]|len\(batch\[1\]\))",
        "targets have one dimension, and as many rows as inputs",
    ),
    (
        r"03a\.accumulate",
        r"_accumulate: `if clear_inside:` dropped|_accumulate: `optimizer\.zero_grad\(\)` dropped",
        "the branch of a wrong answer, never entered by a right one",
    ),
    (
        r"03a\.accumulate",
        r"by_hand: `(optimizer\.zero_grad\(\)` dropped|for parameter, grad in zip)",
        "every .grad is set before the step, and may be left after it",
    ),
    (
        r"01b\.relu",
        r"`def backward\(grad_output\):` one line",
        "a function may be defined before the array that it looks at",
    ),
    (
        r"01b\.task-loss",
        r"`(targets|column|criterion) = .* one line earlier|`if task == 'one of many':` dropped"
        r"|`if task == 'a number':` one line earlier",
        "cross-entropy takes one-hot floats as well, so that branch may see either",
    ),
    (r"01b\.task-loss", r"0 to -1 in .*outputs\[:, 0\]", "there is one column"),
    (
        r"01b\.(task-loss|cross-entropy)",
        r"dim= dropped in .*log_softmax",
        "torch's old default is the last dimension of two",
    ),
    (
        r"01b\.cross-entropy",
        r"`(if weight is None|spread|log_p|w|q|divisor|safe|rows|per_class|weights|factor)\b"
        r".* one line earlier",
        "it needs nothing of the line above",
    ),
    (
        r"01b\.cross-entropy",
        r"dtype= dropped in .*ones|0 to -1 in `(hit = -log_p\.gather|log_p = row)",
        "float32 times float64 is float64, and there is one dimension or one column",
    ),
    (
        r"01b\.cross-entropy",
        r"dim= dropped in `spread = -\(log_p|in `safe\[mask == 0\]",
        "the sum over examples follows, and any class will do where the mask is 0",
    ),
    (
        r"01b\.cross-entropy",
        r"made_of: .* in `index = targets\.where\(counts, 0\)\.clamp"
        r"|made_of: .* in `per_class = torch\.ones_like\(logits\[0\]\)"
        r"|made_of: 1 to 0 in `return after\(mean\(.*\.sum\(1\)",
        "any class will do where a target does not count, and rows are alike in shape; the sum "
        "over the other dimension follows",
    ),
    (
        r"01b\.cross-entropy",
        r"`if \(targets == ignore_index\)\.all\(\):` dropped",
        "where nothing counts, 0 / 0 is the same nan",
    ),
    (
        r"03a\.accumulate",
        r"graphs_retained_and_dropped: (.* in `torch\.autograd\.backward\(part, retain_graph"
        r"|1 to 0 in `part = .*share\(batch\[1\]\))",
        "the graph is retained for nothing; inputs have as many rows as targets",
    ),
    (
        r"04a\.adamw",
        r"DataReplaced: ",
        "a weight's numbers may be stored anew: with it or without",
    ),
    (
        r"03d\.recompute",
        r"`(class Twice|@staticmethod|ctx\.|outputs\.backward|def |random, packed|after =|named ="
        r"|names, values).* one line earlier|devices= dropped|in `return len\(made\) - 1`",
        "definitions have no order here; there is one device; of the second run nobody unpacks",
    ),
    (r"03a\.clip", r"Gt to GtE in `if norm > max_norm", "at the ceiling the factor is 1"),
    (
        r"03c\.collate",
        r"one line earlier|0 to -1 in .*sequences\[0\]|dtype= dropped in .*(targets|missing)",
        "lines that need nothing of each other; inner shapes are alike; ints are long, and cat "
        "takes the wider dtype",
    ),
    (
        r"03c\.loaders",
        r"(in_order|train|sampler) = .* one line earlier|(Add to Sub|17 to 1\d) in .*seed \+ 17",
        "lines that need nothing of each other; any generator that depends on the seed will do",
    ),
    (
        r"04a\.adam",
        r"(plain|with_setdefault|with_running_products): .* one line earlier",
        "the count, the two averages and their shares need nothing of each other",
    ),
    (r"03b\.baseline", r"in `label, _ = Counter", "the first of one, and of more, is the same"),
    (
        r"03b\.early-freeze",
        r"`for .* in loader:` one line earlier|0 to 1 in `if update % len",
        "the rate is the same before and after the batches of its epoch",
    ),
    (r"03b\.early-freeze", r"0 to -1 in `lrs", "where rates are compared there is one group"),
    (r"03b\.overfit-batch", r"and_max: `loss\.backward\(\)` one line", "it swaps with a note"),
    (r"03b\.inspect-batch", r"`if .* one line earlier", "the order of the names is free"),
    (r"03b\.inspect-batch", r"0 to -1 in `if .*(size\(0\)|shape\[0\])", "targets are 1-d"),
    (r"03b\.next-intervention", r"Gt to GtE|in `best, most", "no two buckets are equally large"),
    (
        r"03b\.plateau",
        r"1 to 0 in `right = logits\.gather",
        "the mean over all pairs of a row and a column is that of the differences",
    ),
    (
        r"03b\.split-by-group",
        r"GtE to Gt|Lt to LtE|dtype= dropped|0 to -1 in `(return|before)",
        "no share is met to 1e-9, and the tensors are 1-d and short",
    ),
    (
        r"03e\.calibration-error",
        r"`(edges|surplus|per_bin) = .* one line earlier|0 to -1 in `return per_bin"
        r"|dtype= dropped in `edges",
        "it needs nothing of the line above; the sums are 1-d; drawn edges are exact in float32",
    ),
    (
        r"03e\.calibration-error",
        r"Add to Sub in `sums\[place\]|0 to -1 in `place = max\(0",
        "the sums are taken by their absolute values; every confidence is above 0",
    ),
    (
        r"03e\.threshold",
        r"_points: `(scores, targets = .*|for threshold in .*)` (dropped|one line earlier)"
        r"|`(best_threshold, best_hits|hits) = .* one line earlier|0 to -1 in `for threshold"
        r"|1 to [02] in `hits = torch\.where",
        "entries of a tensor compare as floats do; scores are 1-d; what is precise enough has a "
        "hit, so any mark below 1 will do",
    ),
    (
        r"03i\.join-ranks",
        r"`(grads =|right =|for name, grad|loss, grads =).* one line earlier"
        r"|0 to (-1|1) in `.*ranks\[0\]\['grads'\]|0\.0 to -?1\.0 in `losses",
        "it needs nothing of the line above; every rank names the same parameters; the mean of no "
        "examples is multiplied by 0",
    ),
    (
        r"03i\.median-time",
        r"`times = \[\]` one line earlier|dtype= dropped in `return torch\.tensor\(readings",
        "it needs nothing of the line above; the case's eighths are exact in float32, too",
    ),
    (
        r"01a\.coordinates",
        r"`(rows|columns) = \w+\.expand\(.* one line earlier",
        "rows and columns need nothing of each other",
    ),
    (
        r"01a\.saliency",
        r"0 to -1 in `(score = model\(pixels\)\[0|maps\.append)|`rows = .* one line earlier",
        "a batch of one image; the indices need nothing of the outputs",
    ),
    (
        r"01a\.tape",
        r"`for (source, _|parent, local|source, back) in .* one line earlier",
        "no value is made from itself, so nothing comes back while its sources are visited",
    ),
    (
        r"01b\.hidden-layers|02a\.batch-norm",
        r"`for name, value in .* one line earlier|`mean(, var)? = .* one line earlier",
        "buffers are registered in any order; a mean changes nothing, and what is refused stays so",
    ),
    (
        r"01b\.linear",
        r"`(drawn = 2|if bias:).* one line earlier|AsTorchDoes: `(def|nn\.init)",
        "numbers may be drawn before the module is set up; the base class's method does the same",
    ),
    (
        r"01c\.five-bugs",
        r"`criterion = .* one line earlier|set_grad_enabled\(|`for inputs, targets in val_batches:`"
        r"|`val_losses\.append",
        "a criterion needs no optimizer; without a graph or with one, an evaluation gives the same "
        "loss, and all that follows it sets the mode of gradients itself",
    ),
    (
        r"02a\.batch-norm",
        r"`self\.running_\w+\.(copy_|lerp_).* one line earlier|`n, keep = .* one line earlier"
        r"|ByTransposing: (0\.1|1e-05) to|ByTransposing: `if self\.training:`",
        "the two memories need nothing of each other; every caller gives momentum and eps; a batch "
        "of one is refused either way, and nothing is said of what it leaves",
    ),
    (
        r"02a\.dead-units",
        r"`(modes|handles|before) = .* one line earlier|`for module, training in .* one line",
        "hooks and modes are noted and put back in any order",
    ),
    (
        r"02a\.dropout",
        r"`(keep|drop) = .* one line earlier|`if p >= 1:` one line earlier|by_where: dtype= dropped"
        r"|0\.0 to -1\.0 in `if not training or p|Lt to LtE in `(drop|return)|1 to 2 in `return",
        "a draw that nobody uses changes nothing; a number drawn is never just p; where p is 1 all "
        "is dropped, whatever the others would be; with p = 0 nothing is",
    ),
    (
        r"02a\.initialise",
        r"`if (module|layer)\.bias is not None:` one line earlier"
        r"|0 to (1|-1) in `.*weight\[0\]\.numel",
        "weight and bias are drawn apart; every row of a weight has as many entries",
    ),
    (
        r"03a\.early-stopping",
        r"`self\.(keep\(model\)|bad \+= 1)` one line earlier",
        "it needs nothing of the line above",
    ),
    (
        r"03a\.fix-the-loop",
        r"`optimizer\.zero_grad\(\)`|`for _ in range\(epochs\):` one|`model\.train\(\)` one line",
        "where each step is followed by clearing, none is needed before the first; a list and the "
        "mode need nothing of each other",
    ),
    (
        r"03c\.lines",
        r"WithTell: `with open|Mapped: (GtE to Gt|0 to 1|1 to 0|1 to 2) in|OpenedLate: `def read",
        "a line begins with its label: none is empty, and int() drops the newline before it; the "
        "base class reads the same",
    ),
    (
        r"03c\.throughput",
        r"1 to 0 in `examples \+= len\(pair|`(times\.append|if number \+ 1 ==).* one line earlier",
        "a batch has as many inputs as targets; the clock stands still between two batches",
    ),
    (
        r"03e\.leaking-pipeline",
        r"Sub to Add in `gap = ",
        "columns of mean 0: in each, the mean of one class is that of the other times one and the "
        "same factor",
    ),
    (
        r"03e\.split-audit",
        r"dtype= dropped in `good = |Looped: `def clean",
        "a mark of 1.0 is as good as True; the base class's method does the same",
    ),
    (
        r"03f\.buckets",
        r"`(gain|points|names) = .* one line earlier|with_tensors: (`if not|dtype= dropped)",
        "it needs nothing of the line above; an empty sample gives an empty table by itself; "
        "float32 is precise enough",
    ),
    (
        r"03f\.paired",
        r"(Gt to GtE|Lt to LtE) in |1 to 2 in `sign|`sign = .* one line earlier"
        r"|Mult to Div in `side|dtype= dropped in `each|0 to -?1 in `verdict",
        "no end is just 0, as the differences are unequal; only the sign counts, and dividing by "
        "±1 multiplies; where it is clear t is above 1; float32 is precise enough",
    ),
    (
        r"03g\.stopper",
        r"InTensors: dtype= dropped|ByEpoch: 0 to -?1 in `epoch, best_epoch",
        "the losses are exact in float32; only the distance of two epochs counts",
    ),
    (
        r"03i\.join-ranks",
        r"in_single_precision: adding_up: .*(grad|if n == 0|`continue`|examples, correct)",
        "its gradients are replaced by those in single precision; ranks without examples are gone",
    ),
    (
        r"04a\.adamw",
        r"`(self\.decay|state\['exp_avg_sq'\]|b1, b2 = |below = ).* one line earlier"
        r"|WithLerp: `def new",
        "the count, decay and both averages need nothing of each other; zeros need no method",
    ),
    (
        r"04a\.groups",
        r"`(rate|flat) = .* one line earlier|`groups\.append.* one line earlier",
        "groups stand in any order",
    ),
    (
        r"04a\.warmup-cosine",
        r"`(done|angle) = .* one line earlier|`if step < warmup:` one line earlier"
        r"|GtE to Gt in `if step >= total|dtype= dropped",
        "total is above warmup, so it may be divided before it is asked; at the end the cosine "
        "gives the floor itself; float32 is precise enough",
    ),
    (
        r"05\.baselines",
        r"`label = .* one line earlier|minlength= dropped in `label|1 to 2 in `return \(x\.flatten",
        "classes without an image are never the most common; images have one channel",
    ),
    (
        r"03c\.loaders",
        r"keyed_by_epoch: .*(epoch=0|_own\(0\))",
        "any first epoch will do; of a loader with a sampler the generator numbers workers alone",
    ),
    (
        r"03d\.loss-scaler",
        r"Plain: True to False in `self\.good|WithInverse: `if self\.streak|WithInverse: dtype="
        r"|Add to Sub in `self\.streak|WithNewTensors: (`if p\.grad\.isnan|negation dropped)"
        r"|`self\.bad = not all.* one line earlier",
        "unscaling sets what was found; a streak counted downwards has the same multiples; inf and "
        "nan stay so when divided; of the history only the length is asked",
    ),
    (
        r"03g\.load",
        r"loaded: (`if (eval_mode|top_only|frozen):|`with torch\.no_grad|`model\.train"
        r"|False to True in `model\.training)|loaded: .* in `agree = |None= dropped|error= dropped",
        "branches of wrong answers, which no right one enters, and no difference is just the "
        "tolerance; any ValueError will do",
    ),
    (
        r"03g\.load",
        r"with_testing: `(model = model\.train|for parameter|with torch\.inf).* one line earlier",
        "loading, the mode and freezing need nothing of each other",
    ),
    (
        r"03g\.save",
        r"`(file\.flush|os\.fsync|new = |os\.rename)|`(os\.close\(descriptor\)|raise)` dropped",
        "torch.save flushes the file that it is given; a file may be renamed while it is open; "
        "without the part the rename raises as well",
    ),
    (
        r"03h\.clipping",
        r"`(parameters|for _ in|norm = nn|squares)|Gt to GtE in `if norm >|0\.0 to -1\.0 in `total",
        "a norm taken before backward() too, and its list, are not used; at the ceiling the factor "
        "is 1; no norm is below 0",
    ),
    (
        r"03h\.(best|dropout)",
        r"`(if val_loss < best_loss:|hits \+= .*)` one line earlier",
        "it neither reads nor changes what the line before it does",
    ),
    (
        r"03h\.(dropout|finetune)",
        r"`model\.train\(\)` dropped",
        "a new module is in train mode, and no layer of the pretrained one has two modes",
    ),
    (
        r"03h\.finetune",
        r"`(model(\[-1\])?|head) = .* one line earlier",
        "the head is made before or after the body is frozen, and before anything trains",
    ),
    (
        r"03h\.pairs",
        r"`(weights|epoch_labels|model\.train).* one line earlier|Div to Mult in `criterion"
        r"|0 to -1 in `epoch_labels|`epoch_labels = .* dropped",
        "a common factor of the weights cancels; labels have one dimension; an answer that takes "
        "them by batch needs no shuffled ones",
    ),
    (
        r"03h\.regressor",
        r"`(model\.eval|scaled = ).* one line earlier|0 to -1 in `outputs",
        "it needs nothing of the line above; the net has one output",
    ),
    (
        r"03h\.resume",
        r"`model, optimizer = make\(\)`|`checkpoint = load\(\)` one line earlier",
        "whichever objects they are, all of their state is put back before they are used",
    ),
    (
        r"05\.data",
        r"`(own|names|train|chosen\.add|x, y).* one line earlier|0\.2 to -0\.8"
        r"|GtE to Gt in `if count|0 to -?1 in `chosen|test_size= dropped"
        r"|1 to 2 in `splitter|correction= dropped"
        r"|0 to -?1 in `mean, std",
        "up to -0.8 of the names are the first 0.2; one image more or less is a share as good; 0.2 "
        "and one split are the defaults, and further ones are not read; a standard deviation of "
        "thousands of pixels has any correction within the tolerance",
    ),
    (
        r"05\.errors",
        r"`(both|matrix|gains) = .* one line earlier|1 to 0 in `classes|0 to -1 in `log_sure"
        r"|1 to [02] in `pairs = sorted",
        "it needs nothing of the line above; any number above every class will do; the rows come "
        "in the order of their classes, and a stable sort keeps it",
    ),
    (
        r"03h\.pooling",
        r"`(model\.(eval|train)|positions = )|(Sub to Add|dim= dropped) in `odds = ",
        "no layer of the reader has two modes; positions need nothing of the line above; a shift "
        "of all scores cancels in their shares",
    ),
    (
        r"03a\.training-script",
        r"train_model: (`loss\.backward\(\)` one line|0 to -?1 in `best)|`kept: .* dropped"
        r"|0 to -1 in `pairs",
        "a loss that is not finite stops it before the step either way; the first epoch is the "
        "best so far, and sets the count and the weights; targets have one dimension",
    ),
    (
        r"03g\.best-file",
        r"`(checkpoint|if history|save\('best'|seen).* one line earlier|Lt to LtE in `if history",
        "both files get the same state, in either order; no two epochs have the same loss",
    ),
    (
        r"03g\.noise",
        r"Add to Sub in `return clean|0 to -?1 in `self\.(inputs|set_epoch)|: `def "
        r"|devices= dropped|`self\.set_epoch\(0\)` dropped",
        "noise has no sign; any first epoch will do, and a run sets it; the base class's method "
        "does the same; there is one device",
    ),
    (
        r"03g\.resume",
        r"`(saved|if saved|model\.train|while|torch\.(random\.)?set_rng|loader\.gen|random = |each"
        r"|for name, thing|new = ).* one line earlier|`model\.train\(\)` dropped"
        r"|True to False in `saved",
        "each part of the state is put back by itself; the model comes in train mode and is never "
        "in another; what was saved by oneself loads the same",
    ),
    (
        r"05\.setup",
        r"`(own|val_loader|loss_fn|rows|scheduler) = .* one line earlier"
        r"|(lr|momentum|label_smoothing|batch_size|padding)= dropped"
        r"|(16|24|32|48|50|64) to \d+ in |True to False in `train_loader"
        r"|`(inputs|train_set), .* one line earlier|drop_last= dropped"
        r"|(0\.1|0\.05|0\.9) to 1\.\d+ in `(scheduler|optimizer)"
        r"|(Add to Sub|1 to [02]) in `own|0 to -?1 in `(model|layers) = .*inputs\[0\]",
        "sizes, rates and the seed's offset are free as long as it learns, and OneCycleLR sets "
        "rate and momentum itself; every image is as large",
    ),
    (
        r"05\.whole",
        r"`(held|settings|setup|scale|model\.eval|with torch\.inf).* one line earlier"
        r"|1 to 0 in `return (made|\{'setup': made)|True to False in `held|1 to 2 in `inputs = "
        r"|with_the_engine: _in_a_row: `model\.eval\(\)` dropped"
        r"|with_the_engine: (make|made_by|train)= dropped",
        "one set-up was made; a file of its own loads the same; the model flattens what it is "
        "given, and this one has no layer of two modes; the defaults are another right one's parts",
    ),
    (
        r"05\.run",
        r"(progress|None|monitor)= dropped|True to False in `(folder|kept)|1 to 0 in `record"
        r"|Lt to LtE in `if loss|Div to Mult in `loss|`folder = Path\(folder\)` dropped"
        r"|`(torch\.manual_seed|mark|optimizer\.load|loss = sum).* one line earlier",
        "a bar is not part of the run, and the loss of validation is the default; the folder above "
        "is there, and a file of its own loads the same; as many labels as images; two losses are "
        "never equal, and a common factor (the last batch's size, too) changes no comparison; the "
        "folder comes as a Path; seed, mark and states need nothing of the line above",
    ),
    (
        r"03g\.load",
        r"loaded: (.*found\.unexpected_keys|And to Or in .*not loose)",
        "these two right answers load strictly, and then nothing is unexpected",
    ),
    (
        r"05\.run",
        r"`(setup|record|state|start) = .* one line earlier|`record\['status'\].* one line earlier"
        r"|`(if \(folder|if loss <|scheduler\.load|own\.set|torch\.set_rng).* one line earlier"
        r"|`(torch\.save|accuracies\.append).* one line earlier",
        "each part of the state is put back and written by itself",
    ),
    (
        r"03h\.probe",
        r"`(step, model|step\(batch\)|optimizer\.register).* one line earlier|Gt to GtE in `return"
        r"|\d to -?\d in `torch\.manual_seed|\d\.0 to \d\.0 in `for factor|Mult to Div in `param",
        "any seed and any two factors show old gradients; what is made or stepped once more before "
        "the look changes nothing that is compared",
    ),
)
"""(exercise, what `tests.bench.checks` calls the mutant, the reason); the first two are regexes."""


def is_equivalent(id: str, mutant: str) -> bool:
    """Whether a mutant of an exercise's right answer is known to be right as well."""
    return any(
        re.fullmatch(exercise, id) and re.search(pattern, mutant)
        for exercise, pattern, _reason in EQUIVALENT
    )
