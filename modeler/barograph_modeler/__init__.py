"""The modeler: learns expected interval lengths and runtimes from the log and writes bands and predictions back.

`maxima` and `bands` fit intervals, `pace` the speed of a workload, `scaling` and `features` whole runs. `learning` and
`forecasts` keep the histories, `state` the snapshot; `serving` exposes metrics and `/predict`.
"""
