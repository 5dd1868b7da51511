"""Two reports to verdicts: compare them, apply budgets, and fetch the other side from a git revision. Needs no torch."""
