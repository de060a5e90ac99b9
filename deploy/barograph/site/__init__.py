"""`barograph page`: a web site of jobs, alarms, applications and predictions, without Grafana."""
