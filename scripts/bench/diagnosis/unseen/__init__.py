"""Programs that no rule was run on yet. After a look at their findings they move to `heldout`."""
