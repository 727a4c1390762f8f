"""Coatcheck: a delayed-job service with pluggable payload storage."""
