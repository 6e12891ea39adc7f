"""Import this before the first DistributedDataParallel or optimizer is made, in a program of tests
that compiles nothing: it takes the place of torch._dynamo, whose import takes longer than that of
torch, and of which these only ask whether they are compiled."""

import sys
from types import ModuleType, SimpleNamespace

import torch

assert "torch._dynamo" not in sys.modules, "the compiler is loaded already"
torch._dynamo = sys.modules["torch._dynamo"] = ModuleType("torch._dynamo")
torch._dynamo.disable = lambda function, *_, **__: function
torch._dynamo.graph_break = lambda: None
torch._dynamo.trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
torch._dynamo.utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
