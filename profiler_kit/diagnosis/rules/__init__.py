"""Drop-in: one file per rule, found by being here. A file holds ``RULE``, a `diagnosis.rule.Rule` named like the file."""
