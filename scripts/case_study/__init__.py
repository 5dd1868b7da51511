"""The case study of the slow small network: it measures the figures, judges the claims and writes the page."""
