"""How constants were measured and fixtures recorded."""
