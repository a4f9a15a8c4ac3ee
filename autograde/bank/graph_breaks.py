"""03i.graph-breaks: which functions fall out of torch.compile's graph."""

from autograde.kinds import Choices, Option

FUNCTIONS = {
    "print": ("y = 2 * x", "print(y.mean())", "return y + 1"),
    "if-value": ("y = 2 * x", "return y + 1 if y.mean() > 0 else y - 1"),
    "tolist": ("y = 2 * x", "return y * y.tolist()[0]"),
    "where": ("y = 2 * x", "return torch.where(y > 0, y, -y)"),
    "if-shape": ("y = 2 * x", "return y + 1 if y.shape[0] > 2 else y - 1"),
    "loop": ("for k in range(3):", "    x = x * k + 1", "return x"),
    "stack": ("ys = [k * x for k in range(3)]", "return torch.stack(ys)"),
}
"""The bodies of the functions of a tensor x [N], by option; a test has torch trace them."""


CODE = {key: "; ".join(f"`{line.strip()}`" for line in FUNCTIONS[key]) for key in FUNCTIONS}


EXERCISE = Choices(
    id="03i.graph-breaks", title="which functions break the graph",
    source='Annotated-loop essay, "Compilation"; engineering module, §5',
    ledger=("C34", "T30", "F119"), minutes=5, difficulty=2, worth=2, read=("F119",),
    hints=("The tracer runs without numbers: it knows shapes and dtypes, and records operations.",
        "Ask of every line: can it be carried out while nobody knows a value of the tensor?",
        "Look for Python that needs a value now: a branch on it, a list or a text made of it."),
    question="Each is the body of a function of a tensor x of shape [N], `for` over two lines. "
    "Which of them does `torch.compile`, with its defaults, not get into one graph?",
    options=(
        Option("print", CODE["print"], "Printing needs the value now, and is not an operation on "
               "tensors: the graph ends before it, another begins after it.", right=True),
        Option("if-value", CODE["if-value"], "Which branch runs depends on a value, which tracing "
               "does not have: the graph ends at the `if`.", right=True),
        Option("tolist", CODE["tolist"], "A list of Python numbers is made of the values: the "
               "graph ends there.", right=True),
        Option("where", CODE["where"],
               "torch.where is one operation that holds both branches: no value has to be known."),
        Option("if-shape", CODE["if-shape"],
               "A shape is known while tracing. The branch is decided then, once per shape."),
        Option("loop", CODE["loop"],
               "A loop over plain numbers is unrolled while tracing: three times two operations."),
        Option("stack", CODE["stack"],
               "A list of tensors is known while tracing, its values are not asked for."),
    ),
)  # fmt: skip
