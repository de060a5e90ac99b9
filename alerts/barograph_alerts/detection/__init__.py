"""Tests of one job: level, change, stall, runtime; combined into one evidence."""
