# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Gallery of widgets
#
# Every interactive widget of the course, in the lecture's order. Run the cell of the one you want; the cells do
# not depend on each other. All widgets can be used by keyboard, too, and
# `course.widgets.export(widget, "page.html")` writes one as a page that needs no kernel.

# %% [markdown]
# ## Training arithmetic: passes, updates, examples
#
# Count forward passes, updates and examples of a run, and see the uneven end of an epoch.
# *Training-loop chapter, c0*

# %%
from course.widgets import TrainingArithmetic

TrainingArithmetic()

# %% [markdown]
# ## The graph of autograd, node by node
#
# Run a real backward pass node by node, and see what is saved, what flows and what remains.
# *Lecture 3, "Autograd · the dynamic tape"; engineering module, §2*

# %%
from course.widgets import GraphExplorer

GraphExplorer()

# %% [markdown]
# ## Shapes: from a batch of images to a loss without dimensions
#
# Follow a batch through a classifier, and see what each rank means and what goes wrong.
# *Engineering module, §1 and §3*

# %%
from course.widgets import ShapesAndRanks

ShapesAndRanks()

# %% [markdown]
# ## What a module registers: trained, moved, saved
#
# Store a tensor and two layers in different ways, and see which operations reach them. *Lecture 3,
# "nn.Module · the container"*

# %%
from course.widgets import ModuleRegistry

ModuleRegistry()

# %% [markdown]
# ## From examples to batches: sample, group, pad
#
# Follow fifty numbered examples through sampler, batches and padding. *Training-loop chapter, c1
# and c2*

# %%
from course.widgets import SamplingAndCollation

SamplingAndCollation()

# %% [markdown]
# ## Data pipeline: which side waits
#
# Set how long loading and computing take, add workers, and watch the idle gaps close. *Lecture 1,
# "Dataset → DataLoader → device"; training-loop chapter, c3*

# %%
from course.widgets import DataPipeline

DataPipeline()

# %% [markdown]
# ## Anatomy of one step: six operations, every tensor
#
# Walk through a training step, and watch which tensors each operation changes. *Training-loop
# chapter, c3; engineering module, §1 and §4*

# %%
from course.widgets import StepAnatomy

StepAnatomy()

# %% [markdown]
# ## Train mode against eval mode: one network, two copies
#
# Give two copies the same input again and again, and count what autograd keeps. *Training-loop
# chapter, c4*

# %%
from course.widgets import TrainAgainstEval

TrainAgainstEval()

# %% [markdown]
# ## Bug detector: six switches, one log
#
# Switch bugs on, alone and together, and identify those of a mystery run from its log.
# *Training-loop chapter, c5*

# %%
from course.widgets import BugDetector

BugDetector()

# %% [markdown]
# ## Training simulator: three spiral arms
#
# Train a small network live, next to the same network with one thing changed. *Training-loop
# chapter, c6; annotated-loop essay, lead animation*

# %%
from course.widgets import TrainingSimulator

TrainingSimulator()

# %% [markdown]
# ## What a number becomes in FP32, FP16 and BF16
#
# Store a number in three formats, flip its bits, and rescue a small one with a loss scale. *Lecture
# 3, "Mixed precision · BF16 is the 2026 default"*

# %%
from course.widgets import NumberFormats

NumberFormats()

# %% [markdown]
# ## Accumulate, then clip: a gradient in the plane
#
# Add the gradients of micro-batches tip to tail, then clip the sum in two ways. *Lecture 3,
# gradient accumulation and clipping*

# %%
from course.widgets import ClippingPlane

ClippingPlane()

# %% [markdown]
# ## Two optimizers race down a loss surface
#
# Choose a surface, two optimizers and their learning rates, and play the race. *training-loop
# essay, "The weight update"*

# %%
from course.widgets import OptimizerRace

OptimizerRace()

# %% [markdown]
# ## Two learning-rate schedules, update by update
#
# Compare two schedules and their runs; step one of them in the wrong unit. *Lecture 3,
# "Learning-rate schedules"; annotated-loop essay, operation 8*

# %%
from course.widgets import TwoSchedules

TwoSchedules()

# %% [markdown]
# ## The production loop: its parts and their order
#
# Switch the parts of a training loop on and off; the code shown is the code that runs.
# *Training-loop chapter, c7; essay "Where the order really matters"*

# %%
from course.widgets import ProductionLoop

ProductionLoop()

# %% [markdown]
# ## What does this curve say?
#
# Read recorded runs epoch by epoch, one alone or two on the same axes. *Lecture 3, "Training curves
# · the diagnostic language"*

# %%
from course.widgets import TrainingCurves

TrainingCurves()

# %% [markdown]
# ## The debug ladder: where does the climb stop?
#
# Climb the seven rungs with a broken set-up, and compare its curve with that of the fixed. *Lecture
# 1, "The ladder" and "Rung 3 · overfit one batch"*

# %%
from course.widgets import DebugLadder

DebugLadder()

# %% [markdown]
# ## Learning-rate finder: a sweep, and the truth next to it
#
# Sweep the learning rate, read a rate off the curve, and train with it and with others. *Lecture 3,
# "Rung 5 · the learning-rate finder"*

# %%
from course.widgets import RateFinder

RateFinder()

# %% [markdown]
# ## Error buckets: count before you act
#
# Sort a network's real mistakes into buckets, merge them, and see how much each could gain.
# *Lecture 3, "Error analysis · categorize, then prioritize"*

# %%
from course.widgets import ErrorBuckets

ErrorBuckets()

# %% [markdown]
# ## Ceiling analysis: replace a stage by the truth
#
# Replace stages of a code reader by the truth, alone and together. *Lecture 3, ceiling analysis for
# pipelines*

# %%
from course.widgets import CeilingBoard

CeilingBoard()

# %% [markdown]
# ## Five layers of reproducibility: where do two runs diverge?
#
# Train the same recipe twice, with layers recorded or lost, and compare the bits. *Lecture 3, "Five
# layers of reproducibility"*

# %%
from course.widgets import FiveLayers

FiveLayers()

# %% [markdown]
# ## CPU, GPU, or the loader first?
#
# Ask three questions about a training step, and see where the numbers lead. *AI/ML engineering
# module, section 5*

# %%
from course.widgets import DeviceDecision

DeviceDecision()
