"""Recognition of the work that jobs do: like is compared with like, though nobody names anything."""
