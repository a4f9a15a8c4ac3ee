"""01b.registers: which tensors of a module a checkpoint brings back."""

from autograde.kinds import Choices, Option, Reason

EXERCISE = Choices(
    id="01b.registers", title="what a checkpoint brings back",
    source='Lecture 3, "nn.Module · the container"', ledger=("S11", "T07", "F01", "F02", "F03"),
    minutes=5, difficulty=2, worth=2, read=("F01", "F02", "F03"),
    hints=(
        "There are three registers: parameters, buffers, sub-modules. Which lines write into one?",
        "A module looks at the type of what is assigned: is it a Parameter or a Module? A list is "
        "neither.",
        "Frozen is not unregistered. And a buffer may be registered and still not be saved.",
    ),
    question="`__init__` of a module holds these lines. The model is trained and saved with "
             "`torch.save(model.state_dict(), path)`; a new process builds a new model and loads "
             "the file with `load_state_dict`. Which attributes "
             "does the file bring back?",
    options=(
        Option("dict", '`self.heads = nn.ModuleDict({"digit": nn.Linear(64, 10)})`',
               "A ModuleDict registers its modules: heads.digit.weight is saved.", right=True),
        Option("buffer", '`self.register_buffer("mean", torch.zeros(64))`',
               "A buffer is moved and saved with the module; no optimizer trains it.", right=True),
        Option("frozen", "`self.scale = nn.Parameter(torch.ones(64), requires_grad=False)`",
               "A frozen parameter is still a parameter: it is moved and saved.", right=True),
        Option("list", "`self.blocks = [nn.Linear(64, 64), nn.Linear(64, 64)]`",
               "A Python list hides its layers from the module. nn.ModuleList registers them."),
        Option("plain", "`self.offset = torch.zeros(64, requires_grad=True)`",
               "A plain tensor is not registered, whatever requires_grad says."),
        Option("transient", '`self.register_buffer("mask", torch.ones(64), persistent=False)`',
               "A buffer with persistent=False is moved, but left out of the state_dict."),
    ),
    reason=Reason(
        points=1, ask="A model keeps its mean in a plain tensor, and on a CPU its tests pass. "
                      "Name two moments at which this bug shows up, and what you see then.",
        rubric=((0.5, "Moved to a GPU: forward raises, because the mean is still on the CPU."),
                (0.5, "Loaded: no error; the mean is __init__'s again, so the outputs differ.")),
        solution="On a GPU forward() raises an error about two devices. After loading nothing "
                 "raises: the mean is what __init__ made, and the accuracy is lower than when it "
                 "was saved.",
    ),
)  # fmt: skip
