"""What page, report and status show, in words, figures and charts."""
