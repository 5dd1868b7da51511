"""What is run beside the package, from the checkout: `python -m scripts.bench.count`."""
