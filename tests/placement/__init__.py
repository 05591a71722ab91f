"""Tests of where calls run."""
