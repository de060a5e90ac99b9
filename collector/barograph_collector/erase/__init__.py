"""What is stored of one user, and its removal."""
