"""Networks whose settings `scripts.bench.tune` searches, beside those of models/. Files as users write them."""
