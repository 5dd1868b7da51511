"""The networks that benchmarks and validations run on."""
