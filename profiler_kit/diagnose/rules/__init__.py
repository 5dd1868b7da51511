"""Drop-in: one file per rule, found by being here. A file holds ``RULE``, a `profiler_kit.diagnose.rule.Rule` of its own name."""
