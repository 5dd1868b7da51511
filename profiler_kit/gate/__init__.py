"""The pre-merge gate: budgets, the base side out of git, the verdict of a review. Needs no torch."""
