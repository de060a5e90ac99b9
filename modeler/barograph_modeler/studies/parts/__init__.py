"""Studies of runtimes from phases: a simulator of programs and machines, and errors on them."""
