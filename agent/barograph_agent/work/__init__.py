"""What was asked for: the executable, the words of its command line and its input files, as salted digests."""
