"""The exceptions of the engine, so that a caller can distinguish faults."""


class EngineError(ValueError):
    """What was passed in cannot be trained. Nothing has been changed, or the message says where in
    the run it happened."""


class DeviceError(ValueError):
    """torch cannot compute on this device here; the message says which devices there are."""


class NonFiniteError(FloatingPointError):
    """A loss or a gradient is inf or nan. The step was not taken: the weights that it would have
    moved are untouched."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read or does not fit what it should be loaded into."""
