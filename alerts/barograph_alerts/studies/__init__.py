"""Back-tests of alarms: `detectors` are ours and its rivals, `pairs` cuts measurements into jobs with a
history, `tally` counts false alarms, detections and delay.
"""
