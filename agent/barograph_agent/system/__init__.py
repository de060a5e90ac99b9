"""What a process has from the operating system: time, files, connections, threads, other processes.

Modules take these as parameters, so tests run the same code under a virtual clock, on a simulated disk and over a
simulated network. Nothing else calls `time`, `socket` or `os.fsync` (`tests/check_house.py`).
"""
