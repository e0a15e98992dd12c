"""Environments of this package for other libraries. Import the module you need: each brings its library along."""
