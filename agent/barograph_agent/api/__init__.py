"""What a program may call itself: intervals of its own (`interval`, `mark`) and features (`features`)."""
