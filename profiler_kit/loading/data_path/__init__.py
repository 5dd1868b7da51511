"""What a program passes to its model: the batch followed back through loaders, data sets and transforms, without running it."""
