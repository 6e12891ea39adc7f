"""Import this before the first optimizer is made, in a program of tests that compiles nothing:
torch then does without its compiler. It loads torch._dynamo, 800 modules and half of the processor
time of a short training, only to exempt some functions from compilation."""

import sys
import types

import torch

assert "torch._dynamo" not in sys.modules, "the compiler is loaded already"
torch._dynamo = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
torch._dynamo.disable = lambda function, *_, **__: function
torch._dynamo.graph_break = lambda: None
