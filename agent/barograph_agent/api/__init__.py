"""The API for applications: intervals of their own (`interval`, `mark`) and features (`features`)."""
