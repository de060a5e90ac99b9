"""The hook in training programs. This folder is in the PYTHONPATH of what `barograph run` starts: any version of Python
3 imports its `sitecustomize`, which installs `barograph_training`. The shim writes what that reports (`training.c`).
"""
