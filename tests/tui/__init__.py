"""Tests of the terminal monitor."""
