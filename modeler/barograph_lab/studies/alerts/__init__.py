"""Back-tests of alarms: `detectors` has Barograph's detector and its rivals, `pairs` cuts measurements into jobs with a
history, `tally` counts false alarms, detections and delays.
"""
