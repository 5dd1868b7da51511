"""The pre-merge gate: budgets, the base counted from a git revision, and the verdict. Does not import torch."""
