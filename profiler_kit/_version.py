"""The version. The build reads this file without importing the package."""

VERSION = "0.1.0"
