"""Answers to reads and SQL queries."""
