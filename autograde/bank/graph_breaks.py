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
    hints=("The tracer runs without values: it knows shapes and dtypes, and records operations.",
        "Ask for every line: can it run without knowing any value in the tensor?",
        "Look for Python code that needs a value now: a branch on it, or a list or string made "
        "from it."),
    question="Each option is the body of a function of a tensor x of shape [N], with `for` and its "
    "body on separate lines. Which of them can `torch.compile`, with its default settings, *not* "
    "put into one graph?",
    options=(
        Option("print", CODE["print"], "Printing needs the value now and is not a tensor "
               "operation: one graph ends before it, and another begins after it.", right=True),
        Option("if-value", CODE["if-value"], "Which branch runs depends on a value that the tracer "
               "does not have: the graph ends at the `if`.", right=True),
        Option("tolist", CODE["tolist"], "It makes a list of Python numbers from the values, so "
               "the graph ends there.", right=True),
        Option("where", CODE["where"],
               "torch.where is one operation that covers both branches: no value has to be known."),
        Option("if-shape", CODE["if-shape"],
               "The shape is known during tracing, so the branch is decided then, once per shape."),
        Option("loop", CODE["loop"],
               "A loop over plain numbers is unrolled during tracing: three times two operations."),
        Option("stack", CODE["stack"],
               "The list of tensors is known during tracing, and their values are not needed."),
    ),
)  # fmt: skip
