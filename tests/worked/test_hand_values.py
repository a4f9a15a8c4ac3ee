"""Ledger values that the lecture does not print, so that no `printed` holds us to them."""

import math

import pytest

from course.worked import compute
from course.worked.step import close

INF, NAN = math.inf, math.nan


class Near:
    """A value to a tolerance: what the ledger rounds, or what is drawn at random."""

    def __init__(self, value, tolerance):
        self.value, self.tolerance = value, tolerance


LEDGER = {
    "N03": {
        "micro-batches per epoch": 313,
        "updates per epoch, flushing": 79,
        "full updates among them, and micro-batches in the short one": [78, 1],
        "updates of a loop that steps on every K-th micro-batch only": 234,
        "most micro-batches in one of these updates": 5,
        "a counter that never resets: updates": 234,
        "a counter that never resets: left over": 3,
        "drop_last: updates": 234,
        "flushing the remainder: updates": 237,
    },
    "N04": {
        "batches, exactly": 195.3125,
        "iterations": 196,
        "last batch": 80,
        "drop_last: iterations": 195,
    },
    "N05": {
        "micro-batches per epoch": 313,
        "updates by the formula": 790,
        "updates, flushing the remainder": 790,
        "updates by the printed loop": 780,
        "updates with drop_last": 780,
        "updates with one counter for all epochs": 782,
        "the same, flushed once at the end": 783,
    },
    "N07": {
        "unweighted batch": [28.8, 3.2],
        "sd of the minority count": Near(1.6705, 5e-5),
        "batches without the minority, percent": Near(3.2455, 5e-5),
        "weight per example": [1 / 900, 0.01],
        "ratio of the weights": 9.0,
        "sd of the minority count, weighted": Near(2.8284, 5e-5),
        "distinct examples in N draws": Near([383.70, 99.33], 5e-3),
        "draws of each example": [5 / 9, 5.0],
        "simulated, 20 epochs: distinct": Near([383.72, 99.26], 6.0),
        "simulated: minority in a batch": Near(16.08, 0.5),
        "simulated: its sd": Near(2.84, 0.3),
    },
    "N08": {
        "padded shape": [2, 47],
        "mask sums": [12, 47],
        "padding cells, all cells": [35, 94],
        "padding, percent": Near(37.234, 5e-4),
    },
    "N09": {
        "torch, float32: y": [-0.10000002384185791, 1.8000000715255737],
        "torch, float32: loss": 2.2250001430511475,
    },
    "N10": {
        "y after one step": [-0.034, 1.692],
        "loss after one step": 1.96601,
        "torch, float32: loss": 1.9660100936889648,
        "each residual is multiplied by": 0.94,
        "the loss is multiplied by": 0.8836,
        "loss after 2 steps": 1.737166436,
        "loss after 10 steps": 0.6454863865175019,
        "loss after 100 steps": Near(9.395085467638962e-06, 1e-17),
        "stable for lr below": 1 / 3,
    },
    "N11": {
        "½ Σ": 2.225,
        "reduction='mean'": 2.225,
        "reduction='sum'": 4.45,
        "gradient of 'sum' / gradient of 'mean'": [2.0],
    },
    "N06": {"examples that occur exactly once": 100},
    "N12": {"different outputs in train mode": 16, "possible masks": 16},
    "N13": {
        "the same in MiB": Near(381.47, 5e-3),
        "7 B weights in FP32, GB": 28.0,
        "the same without a graph, GB": 28.0,
        "7 B weights in 16 bits, GB": 14.0,
        "Adam's m and v, GB": 56.0,
        "weights, gradients, m and v, GB": 112.0,
    },
    "N14": {"dL/dx": 2.0},
    "N17": {".grad after 3x": 3.0, "then after 5x": 8.0, "reset, then 7x": 7.0},
    "N18": {
        "sum": [1.0, 1.0, 1.0],
        "squared sum": [2.0, 4.0, 6.0],
        "mean": [1 / 3, 1 / 3, 1 / 3],
        "max": [0.0, 0.0, 1.0],
        "without a reset": Near(
            [[1, 1, 1], [3, 5, 7], [3.33, 5.33, 7.33], [3.33, 5.33, 8.33]], 5e-3
        ),
        "tie: max() splits": [0.5, 0.5, 0.0],
        "tie: amax splits": [0.5, 0.5, 0.0],
        "tie: max(dim) picks one": [1.0, 0.0, 0.0],
    },
    "N19": {
        "each loss / K": [0.5, 2.0],
        "big batch: loss": 2.5,
        "mean loss after the step": 0.26,
        "without / K: gradient": -16.0,
        "without / K: w": 1.6,
        "without / K: mean loss": 6.34,
        "stepping after each micro-batch: w": 0.88,
        "w that minimises the loss": 8 / 13,
        "smallest mean loss": 0.038461538461538464,
    },
    "N20": {
        "torch, float64": Near([0.599999880000024, 0.799999840000032], 1e-14),
        "torch, float64: norm": Near(0.99999980000004, 1e-14),
        "torch, float32": [0.5999999046325684, 0.7999998331069946],
        "torch: a norm equal to max_norm becomes": Near(0.999999000001, 1e-12),
        "clip by value": [1.0, 1.0],
        "clip by value: cosine with g": Near(0.98995, 5e-6),
    },
    "N21": {
        "largest drop": 1.4,
        "and at the lr": 0.01,
        "lr of the most negative central slope": 0.001,
        "slopes per decade": [-0.7, -1.05, -0.8, 0.85, 1.9],
        "middle of the steepest interval": Near(3.16e-3, 5e-6),
    },
    "N22": {
        "lr of step 100": Near(1.2524e-5, 5e-10),
        "decades covered by 100 factors": Near(2.12, 5e-3),
        "steps to reach the last lr of the rebuilt plot": 331,
        "steps to pass 1e-2, 1e-1, 1, 10": [236, 284, 331, 378],
        "factor for 100 points to 1": Near(1.17681, 5e-6),
        "factor for 100 points to 10": Near(1.20450, 5e-6),
    },
    "N23": {"bigger model, given augmentation": -0.1, "interaction": -0.5},
    "N24": {
        "most points to gain": [5.76, 5.04, 3.24, 2.52, 1.44],
        "first and third bucket, mistakes": 50,
        "first and third bucket, points": 9.0,
        "first bucket: 95 % half-width": Near(9.1, 0.05),
    },
    "N25": {
        "sum of the single gains": 11.0,
        "gain if all are replaced at once": 18.0,
        "interaction": 7.0,
    },
    "N26": {
        "lr at t = 0, 1, 25, 50, 75, 99, 100": Near(
            [
                1e-3,
                9.997532801828658e-4,
                8.535533905932737e-4,
                5e-4,
                1.4644660940672634e-4,
                2.467198171342e-7,
                0.0,
            ],
            1e-17,
        ),
        "torch within 1e-17 of the closed form": True,
        "past T_max it rises: lr at t = 150, 200": Near([5e-4, 1e-3], 1e-15),
    },
    "N27": {
        "lr at the ends of epochs 1-8": Near(
            [7.68e-4, 2.87e-4, 3.9e-6, 1.81e-4, 6.55e-4, 9.84e-4, 8.65e-4, 4.06e-4], 6e-7
        ),
        "over the run, the learning rate": "falls and rises again",
        "lr after all batches": 1e-3,
        "periods": 16.0,
    },
    "N28": {
        "factor at t = 0, 1, 50, 100, 2575, 5050, 7525, 10000": Near(
            [0, 0.01, 0.5, 1, 0.8535533905932737, 0.5, 0.14644660940672627, 0], 1e-15
        ),
        "torch, during the warmup": [0.0, 0.01, 0.5, 1.0],
        "warmup, percent of the run": 1.0,
        "the first step moves the weight by": 0.0,
    },
    "N29": {"lr after the epoch": Near(1e-5, 1e-18)},
    "N30": {
        "θ": [-0.1, -0.29, -0.561, -0.9049],
        "v": [1.0, 1.9, 2.71, 3.439],
        "terminal step": 1.0,
    },
    "N31": {
        "θ": Near([0.900000002, 0.8654394181165108, 0.8275002408356956], 1e-14),
        "θ, torch": Near([0.900000002, 0.8654394181165108, 0.8275002408356956], 1e-14),
        "m": Near([0.05, 0.025, 0.0325], 1e-15),
        "v": Near([2.5e-4, 2.8975e-4, 2.9946025e-4], 1e-15),
        "largest difference below 1e-15": True,
    },
    "N32": {
        "AdamW: θ": Near([0.890000002, 0.8465394180965108, 0.8001348466347304], 1e-14),
        "AdamW by hand: θ": Near([0.890000002, 0.8465394180965108, 0.8001348466347304], 1e-14),
        "Adam with L2: θ": Near(
            [0.9000000016666666, 0.8475190629593703, 0.7901621834311943], 1e-14
        ),
        "Adam with L2 by hand: θ": Near(
            [0.9000000016666666, 0.8475190629593703, 0.7901621834311943], 1e-14
        ),
    },
    "N33": {
        "θ after one step from 1": Near(
            [0.900990099, 0.900001, 0.900000001, 0.900000000001], 5e-10
        ),
        "without bias correction, in lr": Near(3.1623, 5e-5),
    },
    "N34": {
        "factor one good step before": 1.0,
        "smallest FP16 subnormal": Near(5.960464e-8, 5e-15),
        "0.5 of it in FP16": 0.0,
        "smallest gradient that survives scaling": Near(9.0949e-13, 5e-18),
        "that gradient, scaled, in FP16": Near(5.960464e-8, 5e-15),
        "that gradient, unscaled, in FP16": 0.0,
        "gradients overflow above": Near(0.99951, 5e-6),
        "a gradient of 1, scaled, in FP16": INF,
    },
    "N35": {
        "FP32: largest": Near(3.4028e38, 5e33),
        "FP16: largest": 65504.0,
        "BF16: largest": Near(3.3895e38, 5e33),
        "eps": Near([1.1921e-7, 9.7656e-4, 7.8125e-3], 5e-9),
        "FP32: decimal digits": Near(6.9, 0.05),
        "FP16: decimal digits": Near(3.0, 0.05),
        "BF16: decimal digits": Near(2.1, 0.05),
        "smallest normal": Near([1.1755e-38, 6.1035e-5, 1.1755e-38], 5e-10),
        "smallest subnormal": Near([1.4e-45, 5.96e-8, 9.18e-41], 5e-11),
        "FP16: 65,519": 65504.0,
        "FP16: 65,520": INF,
        "FP16: 2048 + 1": 2048.0,
        "BF16: FP32's largest": INF,
        "BF16: 1 + 0.001": 1.0,
        "BF16: 256 + 1": 256.0,
        "BF16: 70,000": 70144.0,
        "FP16: π": 3.140625,
        "BF16: π": 3.140625,
    },
    "N36": {
        "log-sum-exp": Near(1002.4076059644444, 1e-12),
        "naive log-sum-exp": INF,
        "naive softmax": [NAN, NAN, NAN],
        "cross-entropy, y = 2": Near(0.4076059644443804, 1e-12),
        "cross-entropy, y = 0": Near(2.4076059644443806, 1e-12),
        "low logits, float32: log-sum-exp": Near(-199.68673706, 5e-9),
        "low logits, float32: naive": -INF,
    },
    "N37": {
        "targets, C = 3": Near([0.93333, 0.03333], 5e-6),
        "targets, C = 10": [0.91, 0.01],
        "cross-entropy": Near(0.41703001627783354, 1e-15),
        "smoothed, torch": Near(0.5136966829445002, 1e-15),
        "smoothed, by hand": Near(0.5136966829445002, 1e-15),
        "smallest loss, C = 2, 3, 10": Near([0.1985152, 0.2911398, 0.5002880], 6e-8),
    },
    "N38": {
        "loss at chance": Near([0.6931, 1.0986, 2.3026, 6.9078], 5e-5),
        "smallest loss with a second softmax": Near([0.31326, 0.55144, 1.46115, 5.90947], 5e-6),
        "the same in closed form": Near([0.31326, 0.55144, 1.46115, 5.90947], 5e-6),
    },
    "N39": {
        "train output": Near([-1.341635, -0.447212, 0.447212, 1.341635], 5e-7),
        "the same by hand": Near([-1.341635, -0.447212, 0.447212, 1.341635], 5e-7),
        "running mean": 0.25,
        "unbiased variance": Near(1.6667, 5e-5),
        "running var": Near(1.0666667, 5e-8),
        "eval output": Near([0.726181, 1.694422, 2.662664, 3.630905], 6e-7),
    },
    "N41": {
        "shared tensor after array[0] = 99": [99, 2, 3],
        "shared tensor after array[1] = −5": [99, -5, 3],
        "copied tensor after that": [99, 2, 3],
    },
    "N43": {
        "784-128-10": 101_770,
        "tensors in the first": 4,
        "2-128-128-3": 17_283,
        "784-10": 7_850,
        "128-256-10": 35_594,
        "32-64-2": 2_242,
        "4-16-3": 131,
        "4-2": 10,
    },
    "N44": {
        "training batches, size of the last": [469, 96],
        "validation batches, size of the last": [20, 272],
        "updates": 1_407,
        "normalised pixel range": Near([-0.42421, 2.82149], 5e-6),
    },
    "N45": {
        "batches, exactly": 31.25,
        "iterations per epoch": 32,
        "last batch": 16,
        "updates": 3_200,
    },
    "N46": {"batches, exactly": 31.25, "updates per epoch": 32, "last batch": 4},
    "N48": {"both, GiB": Near(52.15, 5e-3)},
    "N49": {
        "SGD: checkpoint / weights": Near(1.0, 0.01),
        "SGD with momentum: checkpoint / weights": Near(2.0, 0.01),
        "Adam: checkpoint / weights": Near(3.0, 0.01),
    },
    "N50": {"linear rule": 8.0, "root rule": Near(2.828, 5e-4)},
    "N51": {
        "global: [300, 400]": Near([0.6, 0.8], 1e-6),
        "global: [0.3, 0.4]": Near([6e-4, 8e-4], 1e-9),
        "per tensor: [300, 400]": Near([0.6, 0.8], 1e-6),
        "per tensor: [0.3, 0.4]": [0.3, 0.4],
        "per tensor: norm of both": Near(1.1180, 5e-5),
        "per tensor, 9 large tensors: norm / limit": Near(3.0, 1e-6),
        "by value, 1e+08 large numbers: norm / limit": Near(1e4, 1e-3),
    },
    "N52": {
        "rank 0": [0, 3, 6, 9],
        "rank 1": [1, 4, 7, 0],
        "rank 2": [2, 5, 8, 1],
        "items that two ranks share": 2,
        "drop_last: items per rank": [3, 3, 3],
        "drop_last: unseen items": [9],
    },
    "N53": {
        "1, .9, .8, .81, .82, .83 with patience 3": 5,
        "−1e-5 per epoch": 5,
        "−5e-5 per epoch": "never",
        "all NaN": 4,
        "NaN first, then better every epoch": "never",
    },
    "N54": {"lr after each loss": [1.0, 1.0, 1.0, 1.0, 0.1, 0.1]},
    "N55": {"mean of the batch means": Near(1.142857, 5e-7), "mean over examples": 1.04},
    "N56": {
        "as the loop prints it": Near([0.48641, 0.46324, 0.44109], 6e-6),
        "norm of the gradient": Near([0.36614, 0.34947, 0.33353], 6e-6),
        "ratio": Near([1.325, 1.325, 1.325], 0.005),
    },
    "N57": {
        "FLOPs": Near([2.684e8, 2.147e9, 1.718e10], 5e6),
        "counted by torch": [2 * 512**3, 2 * 1024**3, 2 * 2048**3],
        "per doubling": [8.0, 8.0],
    },
    "N58": {"distance travelled, in lr · g": Near(5050.0, 1e-6)},
    "N60": {"accuracy": 0.9, "F1 of the minority class": 0.0},
    "N61": {
        "batch mean, drawn": Near([0.707, 0.498, 0.177], 0.01),
        "batch mean": Near([0.707, 0.5, 0.177], 5e-4),
        "batch variance, drawn": Near([0.709, 0.609, 0.245], 0.02),
        "batch variance": Near([0.709, 0.609, 0.245], 0.005),
    },
    "N62": {
        "parameters": 131,
        "seeds above the threshold": 0,
        "median loss": Near(3.4e-4, 0.5e-4),
        "99 % of the seeds are below": Near(2.2e-3, 0.3e-3),
        "largest loss": Near(2.9e-3, 0.8e-3),
    },
}


@pytest.mark.parametrize("id", LEDGER)
def test_computed_values_are_the_ledgers(id):
    steps = {step.what: step.computed for step in compute(id).steps}
    wrong = {}
    for what, expected in LEDGER[id].items():
        value = expected.value if isinstance(expected, Near) else expected
        tolerance = expected.tolerance if isinstance(expected, Near) else 1e-9
        if what not in steps or not close(value, steps[what], tolerance):
            wrong[what] = (steps.get(what), value)
    assert not wrong
