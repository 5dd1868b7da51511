"""The case study of the slow small network: what is measured, how each claim is judged, how the page is written."""
